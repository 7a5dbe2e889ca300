"""The reader of shell commands against real shells: nothing runs or is written that it did not name.

::

    grammar and mutations ─► command ─► the policy ─┬─ asks: nothing to compare
                                                    └─ allows ─► dash, bash, and bash as `sh`, in a jail
                                                                   └─ ran, wrote: was it named?

Two policies decide: one that allows every command that can be read at all, and the default one of people.
"""

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fuzz.shell_jail import SHELLS, Effects, Jail
from ostinato.harness.permissions import policy
from ostinato.harness.permissions.rules import Action, Permissions, Rule
from ostinato.harness.permissions.shell import Opaque, WordPart, split

READABLE = Permissions([Rule(tool="bash", pattern="?*", action=Action.ALLOW)])
"""The policy that allows every readable command; opaque ones are covered by `*` only."""
DEFAULT = Permissions(policy.DEFAULT)


@dataclass(slots=True)
class Tally:
    """The sum of the results of some commands."""

    counts: Counter[str] = field(default_factory=Counter)
    unjudged: list[tuple[str, str, str]] = field(default_factory=list)
    """The shell, the command, and the effect that the policy had not judged."""

    def add(self, other: "Tally") -> None:
        self.counts += other.counts
        self.unjudged += other.unjudged


def try_one(command: str, jail: Jail, shells: Sequence[str] = tuple(SHELLS)) -> Tally:
    """Run a command in each shell if the policy allows it, and return what was not judged."""
    tally = Tally()
    tally.counts["commands"] += 1
    if READABLE.decide("bash", {"command": command}).action is not Action.ALLOW:
        return tally
    tally.counts["allowed"] += 1
    by_default = DEFAULT.decide("bash", {"command": command}).action is Action.ALLOW
    tally.counts["allowed_by_default"] += by_default
    try:
        parts = split(command)
    except Opaque as error:
        tally.unjudged.append(("reader", command, f"the policy allows an opaque command: {error}"))
        return tally
    for shell in shells:
        effects = jail(shell, command)
        tally.counts[f"{shell}_runs"] += 1
        tally.counts[f"{shell}_programs"] += len(effects.ran)
        tally.counts[f"{shell}_files"] += len(effects.wrote)
        tally.counts[f"{shell}_stopped"] += effects.timed_out
        tally.unjudged += [(shell, command, what) for what in unjudged(parts, effects, by_default=by_default)]
    return tally


def unjudged(parts: Sequence[WordPart], effects: Effects, *, by_default: bool) -> Iterator[str]:
    """Yield each effect that is not among what the policy judged."""
    for words in effects.ran:
        if not any(_names(part, words) for part in parts):
            yield f"ran {words}"
        called = [words[0].removeprefix("/bin/"), *words[1:]]
        if by_default and DEFAULT.decide("bash", {"command": shlex.join(called)}).action is not Action.ALLOW:
            yield f"ran {words}, which is not allowed by default"
    targets = [each.word for part in parts for each in part.redirections if each.writes and each.word]
    for path in effects.wrote:
        if by_default or not any(word.value is None or _leads(word.value, path) for word in targets):
            yield f"wrote {path}"


def _leads(target: str, path: str) -> bool:
    """Return whether the target of a redirection, seen from one of the jail's two folders, is the file."""
    return path in {
        os.path.normpath("/" + target.lstrip("/") if target.startswith("/") else f"{place}/{target}")
        for place in ("/jail", "/jail/d")
    }


def _names(part: WordPart, words: Sequence[str]) -> bool:
    """Return whether the part of the command names a program with these words."""
    if not part.program:
        return False
    patterns = [
        re.escape(word.value) + "\0" if word.value is not None else "(?:[^\0]*\0)*" for word in part.program
    ]
    return re.fullmatch("(?:/bin/)?" + "".join(patterns), "\0".join(words) + "\0", re.DOTALL) is not None


def shrunk(command: str, jail: Jail) -> str:
    """Return the shortest command, found by leaving out pieces, that still does something unjudged."""
    size = max(1, len(command) // 2)
    while size:
        for at in range(len(command)):
            shorter = command[:at] + command[at + size :]
            if len(shorter) < len(command) and try_one(shorter, jail).unjudged:
                command = shorter
                break
        else:
            size //= 2
    return command
