"""The kinds of change that are more than the bytes of a plain file.

Changes map paths to bytes. Plain `bytes` are a file that is not executable; the classes here are the other
kinds. They derive from `bytes`, so that code which only needs the content can ignore the difference.
"""

import base64
from collections.abc import Mapping


class Executable(bytes):
    """The content of a file that its owner may execute."""


class Symlink(bytes):
    """The target of a symbolic link."""


class EmptyDirectory(bytes):
    """A directory without entries, and so no bytes."""


KINDS: Mapping[str, type[bytes]] = {"=": bytes, "x": Executable, "@": Symlink, "/": EmptyDirectory}
_MARKS = {kind: mark for mark, kind in KINDS.items()}


def mark(data: bytes | None) -> str:
    """Return the character that stands for the kind."""
    return "=" if data is None else _MARKS[type(data)]


def packed(data: bytes | None) -> str | None:
    """Return the kind's character and the bytes as base64; None (a deleted file) stays None."""
    return None if data is None else mark(data) + base64.b64encode(data).decode()


def unpacked(text: str | None) -> bytes | None:
    """Return the bytes that `packed` packed. Raises ValueError, LookupError."""
    return None if text is None else KINDS[text[:1]](base64.b64decode(text[1:], validate=True))
