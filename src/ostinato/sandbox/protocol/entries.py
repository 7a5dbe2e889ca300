"""What a change puts at a path, when that is more than a plain file's bytes.

Changes map paths to bytes. Most are files that nobody executes; these are the others. Each is the bytes
that it consists of: code that only wants those need not know the difference.
"""

import base64
from collections.abc import Mapping


class Script(bytes):
    """A file that its owner may execute."""


class Link(bytes):
    """A symbolic link: where it leads."""


class Folder(bytes):
    """A directory with nothing in it: no bytes."""


KINDS: Mapping[str, type[bytes]] = {"=": bytes, "x": Script, "@": Link, "/": Folder}
_MARKS = {kind: mark for mark, kind in KINDS.items()}


def mark(data: bytes | None) -> str:
    """One character for the kind."""
    return "=" if data is None else _MARKS[type(data)]


def packed(data: bytes | None) -> str | None:
    """The kind and the bytes as base64; None, a file that is gone, stays None."""
    return None if data is None else mark(data) + base64.b64encode(data).decode()


def unpacked(text: str | None) -> bytes | None:
    """The inverse of `packed`. Raises ValueError, LookupError."""
    return None if text is None else KINDS[text[:1]](base64.b64decode(text[1:], validate=True))
