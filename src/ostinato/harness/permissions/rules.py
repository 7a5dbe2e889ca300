"""The rules of what the agent may do, over tools and what they touch. Terminal and training share them.

A rule is `{tool, pattern, action}`. Of the rules that match, the last one wins, but a denial always wins. The
user is asked where no rule matches. In a pattern `*` is any text, `?` any character, a backslash takes the
next one literally, and a final ` *` also matches nothing. Patterns match

| tool | the texts that a pattern matches |
|---|---|
| `bash` | each simple command of a compound one, as the program gets its words; `> file`, `< file` apart |
| `read` `write` `ls` … | the path within the repository |
| `edit` | also what `write` and `apply_patch` touch; a denial, also what a shell command writes to |
| other tools | their arguments as JSON |

A command counts as allowed when every part of it is. `cd` to a directory within the repository needs no rule.
What git would run because the repository's settings name it needs rules for the tool `git`, over `key=value`.
"""

import itertools
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ostinato.harness.errors import ToolError
from ostinato.harness.permissions import patterns, views
from ostinato.harness.permissions.repository import Repository, overriding
from ostinato.harness.permissions.shell import UNKNOWN, Opaque, Redirection, WordPart, split
from ostinato.harness.tools import paths
from ostinato.harness.tools.apply_patch import parse
from ostinato.harness.tools.paths import inside

STATEFUL = {"export", "alias", "unalias", "source", ".", "eval", "set", "trap", "exec", "builtin", "command"}
STATEFUL |= {"hash", "enable", "shopt", "unset", "declare", "typeset", "local", "readonly", "read", "printf"}
STATEFUL |= {
    "mapfile",
    "readarray",
    "getopts",
    "let",
    "pushd",
    "popd",
    "cd",
    "bind",
    "fc",
    "complete",
    "wait",
}
"""The commands that may change what later ones mean; beside one of them only the whole text is granted."""
PATHED = {"read", "ls", "grep", "glob", "semantic_search"}
CHANGING = {"write", "edit", "apply_patch"}
OF_GIT = " (a setting of this repository by which git runs a program)"
MOST_PLACES = 8
Arguments = Mapping[str, Any]


class Action(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule, which is one line of a policy.

    >>> str(Rule(tool="bash", pattern="git log *", action=Action.ALLOW))
    'allow bash: git log *'
    """

    tool: str
    pattern: str
    action: Action

    def __str__(self) -> str:
        return f"{self.action} {self.tool}: {self.pattern}"

    def names(self, tool: str) -> bool:
        return patterns.matches(self.tool, tool)

    def matches(self, subject: str) -> bool:
        return patterns.matches(self.pattern, subject)

    @classmethod
    def exactly(cls, tool: str, subject: str) -> "Rule":
        """Return the rule that allows this text and nothing else."""
        return cls(tool=tool, pattern=patterns.exactly(subject), action=Action.ALLOW)

    @property
    def exact(self) -> bool:
        """Return whether the pattern matches one text only."""
        return patterns.is_exact(self.pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The judgement of the policy on one call.

    >>> Permissions([]).decide("bash", {"command": "ls; cat x"}).asks
    ('ls', 'cat x')
    """

    action: Action
    asks: tuple[str, ...] = ()
    """The parts that no rule allows, as they are shown to the user."""
    grants: tuple[Rule, ...] = ()
    """The rules that "always" adds, and no others."""
    reason: str = ""
    """The rule of a denial, or the reason why the text is asked as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """A text that must be allowed; in its `shape` UNKNOWN stands for text that only the shell knows."""

    text: str
    shape: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A subject: one thing that needs permission.

    Each of `needs` must be allowed. `wholes` are longer texts that an exact rule may name instead, of which
    the first is shown. `surely` holds pairs of tool and shape that only denials look at. `maybe` and
    `mentions` are commands that it may run, and texts that may hold some: where a rule denies one of them,
    the user is asked. No pattern but `*` covers an `opaque` subject.
    """

    tool: str
    needs: tuple[_Need, ...]
    wholes: tuple[str, ...]
    surely: tuple[tuple[str, str], ...] = ()
    maybe: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """The shapes of the files that a command may write to, since they are among its words."""
    opaque: bool = False
    unread: bool = False
    """True for a text of which the programs cannot be read, so that any denied command may be among them."""
    settings: bool = False
    """True for a file that git reads as settings, which no pattern covers."""

    def covered(self, rule: Rule, need: _Need) -> bool:
        everything = rule.names("bash") and rule.pattern == "*"
        if self.tool == "git" and everything:
            return True
        if not any(rule.names(name) for name in _names(self.tool)):
            return False
        if rule.exact:
            return rule.matches(need.text) or any(rule.matches(whole) for whole in self.wholes)
        return rule.matches(need.shape) and not self.settings and (not self.opaque or rule.pattern == "*")

    def denied(self, rule: Rule) -> bool:
        """Return whether the rule names something that surely happens."""
        shapes = self._named_by(rule)
        if self.opaque:
            return any(
                patterns.occurs(rule.pattern, text) for each in shapes for text in views.spellings(each)
            )
        return any(rule.matches(shape) for shape in shapes)

    def suspected(self, rule: Rule) -> bool:
        """Return whether the rule names something that may happen."""
        shapes = list(self._named_by(rule))
        if rule.names("bash"):
            shapes += self.maybe
            if self.unread or any(patterns.occurs(rule.pattern, text) for text in self.mentions):
                return True
        if rule.names("edit") or rule.names("write"):
            shapes += [shape for shape in self.files if not _is_vague(shape, rule.pattern)]
        return any(patterns.meets(rule.pattern, shape) for shape in shapes)

    def _named_by(self, rule: Rule) -> list[str]:
        """Yield the shapes that surely happen, of the tools that the rule is about."""
        seen = [*((self.tool, need.shape) for need in self.needs), *self.surely]
        return [shape for tool, shape in seen if any(rule.names(name) for name in _names(tool))]


class Permissions:
    """An ordered list of rules. It is frozen; `granting` returns another one.

    `root` is the repository's absolute path, so that paths below it count as inside.
    """

    def __init__(self, rules: Iterable[Rule], *, root: str = "") -> None:
        self.rules = tuple(rules)
        self.root = root

    def granting(self, rules: Iterable[Rule]) -> "Permissions":
        return Permissions((*self.rules, *rules), root=self.root)

    def decide(self, tool: str, arguments: Arguments) -> Judgement:
        """Decide whether a call may run. It never raises: a text that cannot be read is asked as a whole."""
        subjects, reason = self._subjects(tool, arguments, Repository(self.root))
        denying = next((rule for subject in subjects for rule in self._denials(subject)), None)
        if denying is not None:
            return Judgement(action=Action.DENY, reason=f"the rule `{denying}`")
        asked = [subject for subject in subjects if not self._allowed(subject)]
        if not asked:
            return Judgement(action=Action.ALLOW)
        shown = dict.fromkeys(f"{each.wholes[0]}{OF_GIT * (each.tool == 'git')}" for each in asked)
        grants = dict.fromkeys(Rule.exactly(each.tool, each.wholes[0]) for each in asked)
        return Judgement(action=Action.ASK, asks=tuple(shown), grants=tuple(grants), reason=reason)

    def _denials(self, subject: _Subject) -> Iterator[Rule]:
        return (rule for rule in self._denying() if subject.denied(rule))

    def _denying(self) -> Iterator[Rule]:
        return (rule for rule in self.rules if rule.action is Action.DENY)

    def _allowed(self, subject: _Subject) -> bool:
        deciding = [self._last(subject, need) for need in subject.needs]
        if any(rule is None or rule.action is not Action.ALLOW for rule in deciding):
            return False
        if all(rule is not None and rule.exact for rule in deciding):
            return True
        return not any(subject.suspected(rule) for rule in self._denying())

    def _last(self, subject: _Subject, need: _Need) -> Rule | None:
        return next((rule for rule in reversed(self.rules) if subject.covered(rule, need)), None)

    def _subjects(
        self, tool: str, arguments: Arguments, repository: Repository
    ) -> tuple[list[_Subject], str]:
        """Return the subjects that need permission, and the reason when the text is read as a whole."""
        if tool != "bash":
            return [_named(tool, names, repository) for names in self._named(tool, arguments)], ""
        command = str(arguments.get("command", ""))
        try:
            parts = split(command)
        except Opaque as error:
            return [_opaque(command, unread=True)], str(error)
        acting = [part for part in parts if not self._enters(part)]
        places = self._places(part for part in parts if self._enters(part))
        if not parts or len(places) > MOST_PLACES or any(map(self._leaves, places)):
            return [_opaque(command)], ""
        settings = self._settings(acting, places, repository)
        if any(_is_stateful(part) for part in acting) and len(parts) > 1:
            seen = tuple(view for part in acting for view in self._surely(part, places))
            return [
                _opaque(command, seen, unread=True),
                *settings,
            ], "an early part changes what later ones do"
        return [*(self._command(part, command, places, repository) for part in acting), *settings], ""

    def _settings(self, acting: list[WordPart], places: list[str], repository: Repository) -> list[_Subject]:
        """Return the subjects of the programs that git would run because the repository names them."""
        running = [part for part in acting if any(map(_is_git, views.certain(part)))]
        if not running:
            return []
        words = {name for part in running for name in self._files(part, places) if UNKNOWN not in name}
        found = repository.programs([*places, *words], overriding(acting))
        texts = dict.fromkeys(found)
        return [_Subject(tool="git", needs=(_Need(text=text, shape=text),), wholes=(text,)) for text in texts]

    def _named(self, tool: str, arguments: Arguments) -> list[tuple[str, ...]]:
        """Yield the names of each file that a tool other than `bash` touches."""
        if tool in CHANGING:
            touched = list(changed_by(tool, arguments))
            return [paths.names(path, self.root) for path in touched] or [("(a patch that cannot be read)",)]
        if tool in PATHED:
            return [paths.names(str(arguments.get("path", ".")), self.root)]
        return [(json.dumps(dict(arguments), sort_keys=True, ensure_ascii=False, default=str),)]

    def _command(self, part: WordPart, command: str, places: list[str], repository: Repository) -> _Subject:
        """Return the subject of a part of `command` that runs in one of the `places`."""
        opened = [each for each in part.redirections if each.word is not None]
        words = [_Need(text=part.command, shape=part.shape)] if part.words else []
        needs = (*words, *(need for each in opened for need in self._opens(each, places)))
        elsewhere = len(places) > 1 and any(each.writes for each in opened)
        foreign = _is_git(part.command) and any(paths.repository_below(place, self.root) for place in places)
        files = () if views.only_reads(part) else tuple(self._files(part, places))
        written = [need.shape[2:] for need in needs if need.shape.startswith("> ")]
        settings = any(repository.reads(name) for name in (*files, *written) if UNKNOWN not in name)
        return _Subject(
            tool="bash",
            needs=needs or (_Need(text=part.text, shape=part.text),),
            wholes=(command,) if elsewhere or foreign else (part.text, command),
            surely=tuple(self._surely(part, places)),
            maybe=tuple(views.tails(part)),
            mentions=tuple(views.lines(part)),
            files=files,
            opaque=foreign or settings,
        )

    def _files(self, part: WordPart, places: list[str]) -> Iterator[str]:
        """Yield the shapes of the files that a part may name, of which the beginning is known."""
        for text in dict.fromkeys(views.operands(part)):
            known, unknown, _ = text.partition(UNKNOWN)
            if not known:
                yield text
            elif "\0" not in known:
                for place in places:
                    yield from (f"{name}{unknown}" for name in paths.names(known, self.root, place))

    def _surely(self, part: WordPart, places: list[str]) -> Iterator[tuple[str, str]]:
        yield from (("bash", text) for text in (part.text, *views.certain(part)))
        for each in part.redirections:
            if each.writes and each.word is not None:
                yield from (("edit", need.shape[2:]) for need in self._opens(each, places))

    def _opens(self, opened: Redirection, places: list[str]) -> list[_Need]:
        """Yield `> path` or `< path` for each name that the file of a redirection may have."""
        word, sign = opened.word, ">" if opened.writes else "<"
        assert word is not None
        if word.value is None:  # it may lead anywhere, however it begins
            return [_Need(text=f"{sign} {word.text}", shape=f"{sign} {UNKNOWN}")]
        names = [name for place in places for name in paths.names(word.value, self.root, place)]
        return [_Need(text=f"{sign} {name}", shape=f"{sign} {name}") for name in dict.fromkeys(names)]

    def _enters(self, part: WordPart) -> bool:
        """Return whether a part only changes into a directory within the repository."""
        values = [word.value for word in part.words]
        if len(values) != 2 or values[0] != "cd" or not values[1] or part.redirections:
            return False
        names = paths.names(values[1], self.root)
        plain = not any(name.startswith(("/", "-", "..")) for name in names) and ".." not in values[1].split(
            "/"
        )
        return plain and not any(self._denials(_named("bash", (part.text,), Repository(""))))

    def _places(self, entering: Iterable[WordPart]) -> list[str]:
        """Return the directories in which a part may run, since each `cd` may have happened or failed."""
        places = ["."]
        for part in itertools.islice(entering, MOST_PLACES):
            into = part.words[1].value or "."
            below = [into] if into.startswith("/") else [posixpath.join(place, into) for place in places]
            places = list(dict.fromkeys((*places, *(inside(each, self.root) for each in below))))
        return places

    def _leaves(self, place: str) -> bool:
        """Return whether a directory lies outside the repository, perhaps by a link."""
        return any(name.startswith(("/", "..")) for name in paths.names(place, self.root))


def _is_vague(shape: str, pattern: str) -> bool:
    """Return whether a file of which a part is known only while it runs meets about every such pattern."""
    if UNKNOWN not in shape or shape == UNKNOWN:
        return False
    return pattern.startswith(("*", ".") if shape.startswith(UNKNOWN) else "*")  # no `*` of a shell is a dot


def _names(tool: str) -> tuple[str, ...]:
    return (tool, "edit") if tool in CHANGING else (tool,)


def _named(tool: str, names: tuple[str, ...], repository: Repository) -> _Subject:
    """Return the subject of a file with one name, or with two, which are then shown and granted together."""
    whole = names[0] if len(names) == 1 else f"{names[0]} (really {names[-1]})"
    needs = tuple(_Need(text=name if len(names) == 1 else whole, shape=name) for name in names)
    settings = tool in CHANGING and any(map(repository.reads, names))
    shown = f"{whole} (git reads or runs it)" if settings else whole
    return _Subject(tool=tool, needs=needs, wholes=(shown,), settings=settings)


def changed_by(tool: str, arguments: Arguments) -> Iterator[str]:
    """Return the paths that a call of `write`, `edit` or `apply_patch` names; no paths for another tool."""
    if tool not in CHANGING:
        return
    if tool != "apply_patch":
        yield str(arguments.get("path", "."))
        return
    try:
        changes = parse(str(arguments.get("patch", "")))
    except ToolError:
        return
    yield from (path for change in changes for path in (change.path, change.move_to) if path)


def touched(tool: str, arguments: Arguments, *, root: str) -> list[str]:
    """Return the files within the repository that a call changes."""
    return [inside(path, root) for path in changed_by(tool, arguments)]


def _opaque(command: str, surely: tuple[tuple[str, str], ...] = (), *, unread: bool = False) -> _Subject:
    need = _Need(text=command, shape=command)
    return _Subject(tool="bash", needs=(need,), wholes=(command,), surely=surely, opaque=True, unread=unread)


def _is_stateful(part: WordPart) -> bool:
    return not part.program or part.program[0].value in STATEFUL


def _is_git(command: str) -> bool:
    return posixpath.basename(command.partition(" ")[0]).lower().startswith("git")


ALLOW_ALL = Permissions([Rule(tool="*", pattern="*", action=Action.ALLOW)])
"""The policy inside a sandbox, where nothing can be harmed: practice, bench and simulated developers."""
