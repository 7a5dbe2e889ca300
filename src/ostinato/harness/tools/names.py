"""The names of files as the model reads and writes them. On a disk they are bytes.

A byte that is not UTF-8, and a character that would break a line or move a cursor, is shown as `\\xNN`, and
so is a backslash that could be taken for the beginning of one. So every name has one form, no two names share
it, and a call that gives it means that name. All other names are shown as they are.
"""

import re

ODD = re.compile(r"[\x01-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\\(?=x[0-9a-f]{2})")
ESCAPED = re.compile(rb"\\x(0[1-9a-f]|1[0-9a-f]|5c|7f|[89a-f][0-9a-f])")
HALVES = re.compile("[\udc80-\udcff]")
BROKEN = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def shown(name: str) -> str:
    """Return a name, as `os.fsdecode` gives it, in the form that the model reads.

    >>> shown("caf\\udce9 é\\n"), shown("a\\\\b"), shown("\\\\xe9")
    ('caf\\\\xe9 é\\\\x0a', 'a\\\\b', '\\\\x5cxe9')
    """
    return ODD.sub(lambda odd: "".join(f"\\x{byte:02x}" for byte in _bytes(odd[0])), name)


def meant(name: str) -> str:
    """Return the name that is shown in this form, as `os.fsdecode` gives it.

    >>> meant("caf\\\\xe9"), meant("\\\\x5cxe9"), meant("\\\\x2e\\\\x00")
    ('caf\\udce9', '\\\\xe9', '\\\\x2e\\\\x00')
    """
    if "\\x" not in name:
        return name
    data = ESCAPED.sub(lambda escaped: bytes([int(escaped[1], 16)]), _bytes(name))
    return data.decode("utf-8", "surrogateescape")


def presentable(text: str) -> str:
    """Return a text that every JSON and terminal takes: a byte of a name is shown as in a name, and any other
    half of a surrogate pair as a question mark.
    """
    if text.isascii():
        return text
    return HALVES.sub(lambda half: shown(half[0]), BROKEN.sub("?", text))


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a half that stands for no byte, which only JSON can hold
        return text.encode("utf-8", "surrogatepass")
