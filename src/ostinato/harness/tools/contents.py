"""The text of a file and the bytes it is kept in. Encoding, byte order mark, newlines and the end of the last
line stay as the file has them, whichever tool changes it.

A line is what git takes for one: it ends with LF. A CR before that belongs to the end of the line and is not
shown; every other character, a lone CR and U+2028 among them, is part of the line.
"""

import codecs
import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ostinato.harness.errors import UnexpectedEnvironment

MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is the beginning of this one
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
DECLARED = re.compile(r"(?:[^\n]*\n)?[^\n]*?coding[:=][ \t]*([-\w.]+)", re.ASCII)
DECLARED_CHARS = 500
"""The declaration of an encoding in the first or second line, as Python, Emacs and Vim read it."""
UNDECLARED = ("cp1252", "latin-1")
"""The encodings of a file that is neither UTF-8 nor says what it is; the last one takes any bytes."""
MARK = "\ufeff"
NEWLINE = re.compile(r"\r\n|(?<!\r)\n")
MOST_COMPARED = 4_000_000
"""The most pairs of lines that are compared for the newlines of a file with both kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    """The text of a file, its newlines untouched, and the way in which it is kept.

    >>> decode(b"\\xef\\xbb\\xbfcaf\\xc3\\xa9", "a.txt")
    FileText(path='a.txt', mark=b'\\xef\\xbb\\xbf', encoding='utf-8', text='café')
    """

    path: str
    mark: bytes
    encoding: str
    text: str

    def encoded(self, text: str) -> bytes:
        """Return `text` in the same encoding, behind the same mark; raises UnexpectedEnvironment when the
        encoding lacks a character. A text that declares another encoding than before is kept in that one.
        """
        named = _declared(text)
        encoding = self.encoding if self.mark or named in ("", _declared(self.text)) else named
        try:
            return self.mark + text.encode(encoding)
        except LookupError:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            char = text[error.start]
            raise UnexpectedEnvironment(
                f"{self.path} is in {encoding}, which has no {char!r}: leave it out, or convert the file"
            ) from None

    @property
    def shown(self) -> str:
        """Return the text as the model reads it, each newline as LF."""
        return self.text.replace("\r\n", "\n")


def decode(data: bytes, path: str) -> FileText:
    """Return the text of a file; raises UnexpectedEnvironment when it is none: it has a NUL and is in no form
    of Unicode.
    """
    mark, marked = next(((mark, name) for mark, name in MARKS if data.startswith(mark)), (b"", "utf-8"))
    encodings = [marked]
    if not mark and b"\0" not in data:
        encodings += [_declared(data[:DECLARED_CHARS].decode("latin-1")), *UNDECLARED]
    for encoding in encodings:
        try:
            text = data[len(mark) :].decode(encoding)
            if text.encode(encoding) == data[len(mark) :]:
                return FileText(path=path, mark=mark, encoding=encoding, text=text)
        except (UnicodeError, LookupError):
            continue
    raise UnexpectedEnvironment(f"{path} is not text")


def _declared(text: str) -> str:
    found = DECLARED.match(text[:DECLARED_CHARS])
    return found[1] if found else ""


def is_crlf(text: str) -> bool:
    """Return whether every newline is CRLF and there is at least one."""
    return "\r\n" in text and text.count("\n") == text.count("\r\n")


def rewritten(data: bytes | None, content: str, path: str) -> bytes:
    """Return what `write` puts in place of a file's bytes: `content`, kept as that file was.

    A line that stays keeps its newline, and another one gets that of the line whose place it takes. Whether
    the last line has a newline stays as well, since nobody who reads a file sees that; a blank last line is
    nothing but its newline, and has it. Raises UnexpectedEnvironment.
    """
    try:
        kept = decode(data or b"", path)
    except UnexpectedEnvironment:  # a binary file becomes text
        return content.encode()
    text = content.removeprefix(MARK) if kept.mark and not kept.text.startswith(MARK) else content
    odd = "\r\r\n" in kept.text  # a line that ends with a lone CR is shown with what looks like CRLF
    if is_crlf(kept.text):
        text = text.replace("\n", "\r\n") if odd else NEWLINE.sub("\r\n", text)
    elif "\r\n" in kept.text and (odd or "\r\n" not in text):
        text = _with_newlines_of(kept.text, text)
    if kept.text and not kept.text.endswith("\n"):
        is_crlf_end = text.endswith("\r\n") and not kept.text.endswith("\r")
        unended = text.removesuffix("\r\n" if is_crlf_end else "\n")
        text = text if unended.endswith("\n") or not unended.strip(MARK) else unended
    elif kept.text and text.strip(MARK) and not text.endswith(("\n", "\r")):
        text += "\r\n" if kept.text.endswith("\r\n") else "\n"
    return kept.encoded(text)


def _with_newlines_of(old: str, new: str) -> str:
    """Return `new`, whose newlines are LF, with those of the lines of `old`, which has both kinds."""
    *before, _ = old.split("\n")
    *after, rest = new.split("\n")
    ends = ["\r\n" if line.endswith("\r") else "\n" for line in before]
    texts = [line.removesuffix("\r") for line in before]
    lines = []
    for first, last, start, stop in _blocks(texts, after):
        for number, line in enumerate(after[start:stop]):
            lines.append(line + ends[min(first + number, max(last - 1, 0))])
    return "".join(lines) + rest


def _blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the blocks of `new` in order, as `difflib` does, each beside the block of `old` that it is or
    replaces.
    """
    shortest = min(len(old), len(new))
    top = next((i for i in range(shortest) if old[i] != new[i]), shortest)
    end = next((i for i in range(shortest - top) if old[-1 - i] != new[-1 - i]), shortest - top)
    a, b = old[top : len(old) - end], new[top : len(new) - end]
    yield 0, top, 0, top
    if len(a) * len(b) > MOST_COMPARED:
        yield top, top + len(a), top, top + len(b)
    else:
        for _, i1, i2, j1, j2 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
            yield top + i1, top + i2, top + j1, top + j2
    yield len(old) - end, len(old), len(new) - end, len(new)
