"""What the agent may do: rules over tools and what they touch. The same object in a terminal and in training.

A rule is `{tool, pattern, action}`. Of the rules that match, the last one wins, but a denial always wins;
what no rule matches is asked. In a pattern `*` is any text, `?` any character, a backslash takes the next one
literally, and a final ` *` also matches nothing. Patterns match

| tool | what they match |
|---|---|
| `bash` | each simple command of a compound one, as the program gets its words; `> file`, `< file` apart |
| `read` `write` `ls` … | the path within the repository |
| `edit` | also what `write` and `apply_patch` touch; a denial, also what a shell command writes to |
| other tools | their arguments as JSON |

A command counts as allowed when every part of it is. `cd` to a directory within the repository needs no rule.
"""

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from ostinato.harness.apply_patch import parse
from ostinato.harness.errors import ToolError
from ostinato.harness.shell import Opaque, Part, split

WRAPPERS = {"env", "sudo", "doas", "nohup", "time", "nice", "ionice", "timeout", "xargs", "command", "exec"}
WRAPPERS |= {"builtin", "stdbuf", "setsid", "watch", "find", "parallel"}
"""Programs that run the program named after them: a denial looks through them."""
SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "eval"}
STATEFUL = {"export", "alias", "unalias", "source", ".", "eval", "set", "trap", "exec", "builtin", "command"}
STATEFUL |= {"hash", "enable", "shopt", "unset", "declare", "typeset", "local", "readonly", "read", "printf"}
STATEFUL |= {"mapfile", "readarray", "getopts", "let", "pushd", "popd", "cd"}
"""Commands that may change what later ones mean: with one of them only the whole text is granted."""
SEARCHING = {"ls", "grep", "glob", "semantic_search"}
CHANGING = {"write", "edit", "apply_patch"}
Arguments = Mapping[str, Any]


class Action(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of a policy.

    >>> str(Rule(tool="bash", pattern="git log *", action=Action.ALLOW))
    'allow bash: git log *'
    """

    tool: str
    pattern: str
    action: Action

    def __str__(self) -> str:
        return f"{self.action} {self.tool}: {self.pattern}"

    def names(self, tool: str) -> bool:
        return _regex(self.tool).fullmatch(tool) is not None

    def matches(self, subject: str) -> bool:
        if self.pattern.endswith(" *") and _regex(self.pattern[:-2]).fullmatch(subject):
            return True
        return _regex(self.pattern).fullmatch(subject) is not None

    @classmethod
    def exactly(cls, tool: str, subject: str) -> "Rule":
        """Allows this and nothing else."""
        return cls(tool=tool, pattern=re.sub(r"([\\*?])", r"\\\1", subject), action=Action.ALLOW)

    @property
    def exact(self) -> bool:
        """Whether the pattern matches one text only."""
        return re.search(r"(?<!\\)(?:\\\\)*[*?]", self.pattern) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the policy says of one call.

    >>> Permissions([]).decide("bash", {"command": "ls; cat x"}).asks
    ('ls', 'cat x')
    """

    action: Action
    asks: tuple[str, ...] = ()
    """The parts that no rule allows, as they are shown to the user."""
    grants: tuple[Rule, ...] = ()
    """What "always" adds: exactly these."""
    reason: str = ""
    """Of a denial: the rule; of a question: why the text is asked as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """One thing that needs permission.

    `needs`: texts that must each be allowed. `wholes`: longer texts that an exact rule may name instead, the
    first of them shown. `also`: further (tool, text) that only denials look at. `opaque`: no pattern but `*`
    covers it.
    """

    tool: str
    needs: tuple[str, ...]
    wholes: tuple[str, ...]
    also: tuple[tuple[str, str], ...] = ()
    opaque: bool = False

    def covered(self, rule: Rule, need: str) -> bool:
        if not any(rule.names(name) for name in _names(self.tool)):
            return False
        if rule.exact:
            return rule.matches(need) or any(rule.matches(whole) for whole in self.wholes)
        return rule.matches(need) and (not self.opaque or rule.pattern == "*")

    def denied(self, rule: Rule) -> bool:
        views = [*((self.tool, text) for text in (*self.needs, *self.wholes)), *self.also]
        named = [text for tool, text in views if any(rule.names(name) for name in _names(tool))]
        if self.opaque:
            anywhere = rf"(?<![\w-]){_source(rule.pattern.removesuffix(' *'))}(?![\w-])"
            return any(re.search(anywhere, text, re.DOTALL) for text in named)
        return any(rule.matches(text) for text in named)


class Permissions:
    """An ordered list of rules. Frozen: `granting` gives another one.

    `root` is the repository's absolute path, so that paths below it count as inside.
    """

    def __init__(self, rules: Iterable[Rule], *, root: str = "") -> None:
        self.rules = tuple(rules)
        self.root = root

    def granting(self, rules: Iterable[Rule]) -> "Permissions":
        return Permissions((*self.rules, *rules), root=self.root)

    def decide(self, tool: str, arguments: Arguments) -> Judgement:
        """Whether a call may run. Never raises: what cannot be read is asked as a whole."""
        subjects, reason = self._subjects(tool, arguments)
        denying = next((rule for subject in subjects for rule in self._denials(subject)), None)
        if denying is not None:
            return Judgement(action=Action.DENY, reason=f"the rule `{denying}`")
        asked = [subject for subject in subjects if not self._allowed(subject)]
        if not asked:
            return Judgement(action=Action.ALLOW)
        shown = tuple(dict.fromkeys(subject.wholes[0] for subject in asked))
        grants = tuple(Rule.exactly(tool, text) for text in shown)
        return Judgement(action=Action.ASK, asks=shown, grants=grants, reason=reason)

    def _denials(self, subject: _Subject) -> Iterator[Rule]:
        return (rule for rule in self.rules if rule.action is Action.DENY and subject.denied(rule))

    def _allowed(self, subject: _Subject) -> bool:
        return all(self._last(subject, need) is Action.ALLOW for need in subject.needs)

    def _last(self, subject: _Subject, need: str) -> Action:
        covering = (rule.action for rule in reversed(self.rules) if subject.covered(rule, need))
        return next(covering, Action.ASK)

    def _subjects(self, tool: str, arguments: Arguments) -> tuple[list[_Subject], str]:
        """What needs permission, and why it is read as a whole if it is."""
        if tool != "bash":
            texts = self._texts(tool, arguments)
            return [_Subject(tool=tool, needs=(text,), wholes=(text,)) for text in texts], ""
        command = str(arguments.get("command", "")).strip()
        try:
            parts = split(command)
        except Opaque as error:
            return [_opaque(command)], str(error)
        if not parts:
            return [_opaque(command)], ""
        acting = [part for part in parts if not self._enters(part)]
        if any(_is_stateful(part) for part in acting) and len(parts) > 1:
            return [
                self._command(part, command) for part in acting
            ], "an early part changes what later ones do"
        return [self._command(part, part.text, command) for part in acting], ""

    def _texts(self, tool: str, arguments: Arguments) -> list[str]:
        if tool in CHANGING:
            return touched(tool, arguments, root=self.root) or ["(a patch that cannot be read)"]
        if "path" in arguments or tool in SEARCHING:
            return [self._inside(str(arguments.get("path", ".")))]
        return [json.dumps(dict(arguments), sort_keys=True, ensure_ascii=False, default=str)]

    def _inside(self, path: str) -> str:
        return inside(path, self.root)

    def _command(self, part: Part, *wholes: str) -> _Subject:
        targets = tuple(found.target for found in part.redirections if found.target is not None)
        written = tuple(("edit", self._inside(target[2:])) for target in targets if target.startswith("> "))
        needs = (*([part.command] if part.words else []), *targets)
        return _Subject(
            tool="bash", needs=needs or (part.text,), wholes=wholes, also=(*_views(part), *written)
        )

    def _enters(self, part: Part) -> bool:
        """Whether a part only changes into a directory within the repository."""
        values = [word.value for word in part.words]
        if len(values) != 2 or values[0] != "cd" or not values[1] or part.redirections:
            return False
        plain = not self._inside(values[1]).startswith(("/", "-")) and ".." not in values[1].split("/")
        return plain and not any(self._denials(self._command(part, part.text)))


def _names(tool: str) -> tuple[str, ...]:
    return (tool, "edit") if tool in CHANGING else (tool,)


def touched(tool: str, arguments: Arguments, *, root: str) -> list[str]:
    """The files that a call of `write`, `edit` or `apply_patch` changes; none of another tool's."""
    if tool not in CHANGING:
        return []
    if tool != "apply_patch":
        return [inside(str(arguments.get("path", ".")), root)]
    try:
        changes = parse(str(arguments.get("patch", "")))
    except ToolError:
        return []
    return [inside(path, root) for change in changes for path in (change.path, change.move_to) if path]


def inside(path: str, root: str) -> str:
    """The path as rules see it: relative to the repository when it lies within, `..` resolved."""
    if root and (path == root or path.startswith(root + "/")):
        path = posixpath.relpath(path, root)
    return posixpath.normpath(path)


def _opaque(command: str) -> _Subject:
    return _Subject(tool="bash", needs=(command,), wholes=(command,), opaque=True)


def _is_stateful(part: Part) -> bool:
    return not part.program or part.program[0].value in STATEFUL


def _views(part: Part) -> Iterator[tuple[str, str]]:
    """Other names of what a command runs, for denials: without path, assignments, wrapper or shell."""
    words = [word.value if word.value is not None else word.text for word in part.program]
    if not words:
        return
    name = posixpath.basename(words[0])
    yield "bash", " ".join([name, *words[1:]])
    if name in WRAPPERS:
        for at in range(1, len(words)):
            yield "bash", " ".join([posixpath.basename(words[at]), *words[at + 1 :]])
    if name in SHELLS:
        for word in words[1:]:
            yield from _inner(word)


def _inner(command: str) -> Iterator[tuple[str, str]]:
    try:
        for part in split(command):
            yield from _views(part)
    except Opaque:
        yield "bash", command


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(_source(pattern), re.DOTALL)


def _source(pattern: str) -> str:
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"*": ".*", "?": "."}
    return "".join(wild.get(piece) or re.escape(piece[-1]) for piece in pieces)


ALLOW_ALL = Permissions([Rule(tool="*", pattern="*", action=Action.ALLOW)])
"""Inside a sandbox, where nothing can be harmed: practice, bench and simulated developers."""
