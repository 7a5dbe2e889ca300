"""The lines that a person typed before, in all sessions: a file that only its owner reads."""

import json
import os
from pathlib import Path

MOST = 1_000


class LineHistory:
    """The typed texts, oldest first, and the place of somebody who goes back through them.

    >>> history = LineHistory(None)
    >>> history.add("one"), history.back("draft"), history.forward()
    (None, 'one', 'draft')
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._texts = [] if path is None else _read(path)
        self._place = len(self._texts)
        self._draft = ""

    def add(self, text: str) -> None:
        """Keep a text, unless it is the same as the last one."""
        if text.strip() and self._texts[-1:] != [text]:
            self._texts.append(text)
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                with os.fdopen(descriptor, "w") as file:
                    file.write(json.dumps(text) + "\n")
        self._place = len(self._texts)

    def back(self, now: str) -> str | None:
        """Return the text before; None when there is none. `now` comes again at the end."""
        if self._place == 0:
            return None
        if self._place == len(self._texts):
            self._draft = now
        self._place -= 1
        return self._texts[self._place]

    def forward(self) -> str | None:
        """Return the text after; None when there is none."""
        if self._place >= len(self._texts):
            return None
        self._place += 1
        return self._draft if self._place == len(self._texts) else self._texts[self._place]


def _read(path: Path) -> list[str]:
    """Return the newest texts of a file; a line that cannot be read is left out, and the file kept short."""
    if not path.exists():
        return []
    texts = []
    for line in path.read_text(errors="replace").splitlines()[-MOST:]:
        try:
            text = json.loads(line)
        except ValueError:
            continue  # the last line of a process that was killed
        texts += [text] if isinstance(text, str) else []
    return texts
