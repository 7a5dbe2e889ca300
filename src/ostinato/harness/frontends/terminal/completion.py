"""Completion: commands after `/`, files of the repository after `@`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST = 8
COMMAND = re.compile(r"^/[\w]*$")
FILE = re.compile(r"(?:^|(?<=\s))@([^\s@]*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The texts that may stand in place of the last `length` characters before the cursor.

    >>> Candidates(length=2, words=("/undo",), notes=("take back",)).words
    ('/undo',)
    """

    length: int
    words: tuple[str, ...]
    notes: tuple[str, ...]


def complete(before: str, commands: Mapping[str, str], files: Sequence[str]) -> Candidates | None:
    """Return what completes the text before the cursor; None where nothing does."""
    if COMMAND.match(before):
        found = [name for name in commands if name.startswith(before) and name != before]
        words, notes = tuple(found[:MOST]), tuple(commands[name] for name in found[:MOST])
        return Candidates(length=len(before), words=words, notes=notes) if words else None
    if asked := FILE.search(before):
        words = tuple(ranked(asked[1], files))
        return Candidates(length=len(asked[1]) + 1, words=words, notes=("",) * len(words)) if words else None
    return None


def ranked(asked: str, files: Sequence[str]) -> list[str]:
    """Return the files that fit best: by the start of their name, of their path, by a part, by letters in
    order.

    >>> ranked("ca", ["src/local.py", "src/calc.py", "docs/cat/a.md"])
    ['src/calc.py', 'src/local.py', 'docs/cat/a.md']
    """
    wanted = asked.lower()
    letters = re.compile(".*?".join(map(re.escape, wanted)))
    scored = []
    for path in files:
        low = path.lower()
        name = low.rpartition("/")[2]
        if name.startswith(wanted):
            rank = 0
        elif low.startswith(wanted):
            rank = 1
        elif wanted in name:
            rank = 2
        elif wanted in low:
            rank = 3
        elif letters.search(low):
            rank = 4
        else:
            continue
        scored.append((rank, len(path), path))
    return [path for _, _, path in sorted(scored)[:MOST]]
