"""Repeatable command output: the same tree and command give the same text, at any time and place."""

import re

DURATION = re.compile(r" in \d+\.\d+s(?: \(\d+:\d\d:\d\d\))?")
BEGINS = r"(?:(?<=\s-[IL])|(?<![\w./-]))"
"""The characters before a path that is not the end of a longer one: `/home/a/repo` is not below `/repo`."""
ADDRESS = re.compile(r" at 0x[0-9a-f]{8,16}\b")


def normalise(output: str, root: str | None = None) -> str:
    """Return `output` without pytest durations, object addresses, the absolute path `root` and outer blanks.

    >>> normalise("/box/repo/calc.py:1\\n1 passed in 0.01s\\n", "/box/repo")
    'calc.py:1\\n1 passed'
    """
    text = ADDRESS.sub(" at 0x", DURATION.sub("", output))
    if root and root in text:
        text = re.sub(f"{BEGINS}{re.escape(root)}/", "", text)
        text = re.sub(f"{BEGINS}{re.escape(root)}(?![\\w.-])", ".", text)
    return text.strip("\n").rstrip()
