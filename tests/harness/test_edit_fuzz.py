"""Thousands of edits of real Python sources through the real tools, against an oracle that works on bytes.

The oracle shares nothing with the tools: it knows where a region was taken from, counts places by searching
bytes, and splices. A file that differs from it in a byte, or changed although its call failed, is corrupted.
"""

import ast
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ostinato.harness.execute import Executor
from ostinato.harness.profiles.profile import PROFILES
from ostinato.harness.users import SilentUser
from ostinato.sandbox.base import Sandbox

SOURCES = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
LARGEST = 40_000
NEW = [
    "x = 1",
    "\treturn None",
    "",
    "    # naïve 🙂",
    "\x0c",
    "pass\x0b",
    "«\u2028»",
    "if a:\n\n    b",
    "\\",
    "$1\\g<0>",
]
KINDS = ["as it is", "crlf", "mixed", "no final newline", "bom", "tabs", "repeated", "cr"]


def sources(rng: Random) -> Iterator[tuple[str, bytes]]:
    """Real files, each made awkward in one way."""
    while True:
        data = rng.choice(SOURCES).read_bytes()
        if len(data) <= LARGEST and _is_utf8(data):
            kind = rng.choice(KINDS)
            yield kind, awkward(data, kind, rng)


def _is_utf8(data: bytes) -> bool:
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


def awkward(data: bytes, kind: str, rng: Random) -> bytes:
    lines = data.split(b"\n")
    match kind:
        case "crlf":
            return data.replace(b"\n", b"\r\n")
        case "mixed":
            return b"".join(line + rng.choice([b"\n", b"\r\n"]) for line in lines)
        case "no final newline":
            return data.rstrip(b"\n")
        case "bom":
            return b"\xef\xbb\xbf" + data
        case "tabs":
            return data.replace(b"    ", b"\t")
        case "repeated":
            at = rng.randrange(len(lines))
            return b"\n".join(lines[:at] + lines[at : at + 30] * 3 + lines[at:])
        case "cr":
            return data.replace(b"\n", b"\r", 3)
    return data


def newline_of(data: bytes) -> bytes:
    ends = set(re.findall(rb"\r?\n", data))
    return b"\r\n" if ends == {b"\r\n"} else b"\n"


def edited(data: bytes, rng: Random) -> tuple[dict[str, object], bytes | None]:
    """A call of `edit`, and the file it must leave behind; None when it must fail."""
    newline = newline_of(data)
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.choice([0, 1, 3, 12, 60, 300]))
    while 0 < start < len(data) and data[start] & 0xC0 == 0x80:
        start -= 1
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end += 1
    if newline == b"\r\n":  # what the model reads has plain newlines: a region cannot begin inside of one
        start -= data[start - 1 : start + 1] == b"\r\n"
        end += data[end - 1 : end + 1] == b"\r\n"
    old = data[start:end]
    new = "\n".join(rng.choices(NEW, k=rng.randrange(4)))
    everywhere = rng.random() < 0.1
    arguments = {
        "path": "f.py",
        "old_string": old.replace(newline, b"\n").decode(),
        "new_string": new,
        "replace_all": everywhere,
    }
    put = new.encode().replace(b"\n", newline)
    adapts = newline == b"\n" and b"\r\n" in data and b"\r\n" not in old
    either = re.escape(old).replace(b"\\\n", rb"(?:\r\n|(?<!\r)\n)") if adapts else re.escape(old)
    spans = [found.span(1) for found in re.finditer(b"(?=(" + either + b"))", data)] if old else []
    if not old or old == put or not spans or (len(spans) > 1 and not everywhere):
        return arguments, None
    puts = [at_home(data, *span, put) if adapts else put for span in spans]
    return arguments, spliced(data, spans, puts)


def at_home(data: bytes, start: int, end: int, put: bytes) -> bytes:
    """What is put into a file with both newlines: its own are like those of the region, or of its line."""
    after = re.compile(rb"\r\n|(?<!\r)\n").search(data, end)
    before = re.findall(rb"\r?\n", data[:start])
    ends = re.findall(rb"\r?\n", data[start:end]) or ([after[0]] if after else before[-1:])
    first, *lines = put.split(b"\n")
    return first + b"".join(ends[min(i, len(ends) - 1)] + line for i, line in enumerate(lines))


def spliced(data: bytes, spans: list[tuple[int, int]], puts: list[bytes]) -> bytes:
    out, at = bytearray(), 0
    for (start, end), put in zip(spans, puts, strict=True):
        if start >= at:
            out += data[at:start] + put
            at = end
    return bytes(out + data[at:])


def patched(data: bytes, rng: Random) -> tuple[dict[str, object], bytes | None]:
    """A call of `apply_patch` with one to three hunks, and the file it must leave behind."""
    bom = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
    newline = newline_of(data)
    lines = data[len(bom) :].split(newline)
    closed = lines[-1] == b""
    usual = b"\r" if newline == b"\n" and lines[-2:-1] and lines[-2].endswith(b"\r") else b""
    lines = lines[:-1] if closed else [*lines[:-1], lines[-1] + usual]
    text, out, done, fits = ["*** Begin Patch", "*** Update File: f.py"], [], 0, True
    for _ in range(rng.randint(1, 3)):
        if done >= len(lines):
            break
        first = rng.randrange(done, len(lines))
        old = lines[first : first + rng.randint(1, 6)]
        drop = rng.randrange(len(old) + 1)
        new = [line.encode() for line in rng.choices([each for each in NEW if "\n" not in each], k=2)]
        anchors = [i for i in range(done, first) if lines[i].strip()]
        anchor = rng.choice(anchors) if anchors and rng.random() < 0.5 else None
        start = done
        if anchor is not None:
            start = next(i for i in range(done, first) if lines[i].strip() == lines[anchor].strip()) + 1
        text.append("@@" if anchor is None else "@@ " + lines[anchor].strip().decode())
        text += [("-" if i < drop else " ") + line.decode() for i, line in enumerate(old)]
        text += ["+" + line.decode() for line in new]
        spans = ((i, lines[i : i + len(old)]) for i in range(start, len(lines) - len(old) + 1))
        places = [
            i
            for i, span in spans
            if all(a in (b, b.removesuffix(b"\r")) for a, b in zip(old, span, strict=True))
        ]
        fits = fits and (anchor is not None or len(places) == 1)
        if not fits:
            break
        here = lines[places[0] : places[0] + len(old)]
        like = here if drop == len(old) else here[-1:]
        new = [each + b"\r" * like[min(i, len(like) - 1)].endswith(b"\r") for i, each in enumerate(new)]
        out += [*lines[done : places[0]], *here[drop:], *new]
        done = places[0] + len(old)
    result = [*out, *lines[done:]]
    ended = closed or result[-1:] in ([b""], [usual])  # a blank last line is nothing but its newline
    whole = newline.join(result) + newline if ended and result else newline.join(result).removesuffix(usual)
    return {"patch": "\n".join([*text, "*** End Patch"])}, bom + whole if fits else None


async def corrupted(sandbox: Sandbox, edits: int, seed: int) -> tuple[list[str], int]:
    """Return the problems, and the number of edits that were made."""
    rng = Random(seed)
    tools = Executor(sandbox, SilentUser(), command_timeout_s=2.0, profile=PROFILES["full"])
    wrong, made, awkward_sources = [], 0, sources(rng)
    data = b""
    for number in range(edits):
        if number % 20 == 0 or not data:
            kind, data = next(awkward_sources)
            await sandbox.write("f.py", data)
        name, make = ("edit", edited) if rng.random() < 0.5 else ("apply_patch", patched)
        arguments, expected = make(data, rng)
        observation = await tools.run(name, arguments)
        after = await sandbox.read("f.py")
        if (observation.text == "ok") != (expected is not None) or after != (expected or data):
            if expected == b"" and after == b"":
                continue
            wrong.append(f"{name} {number} of a file {kind}: {observation.text[:200]} {arguments}")
            await sandbox.write("f.py", after := expected or data)
        made += observation.text == "ok"
        data = after
    return wrong, made


async def test_no_file_is_corrupted(sandbox: Sandbox) -> None:
    wrong, made = await corrupted(sandbox, 400, seed=1)
    assert not wrong
    assert made > 150


@pytest.mark.deep
async def test_no_file_is_corrupted_in_ten_thousand_edits(sandbox: Sandbox) -> None:
    wrong, made = await corrupted(sandbox, 16_000, seed=2)
    assert not wrong
    assert made >= 10_000


def test_there_is_enough_to_edit() -> None:
    small = [path for path in SOURCES if path.stat().st_size <= LARGEST]
    assert len(small) > 80
    assert all(ast.parse(path.read_bytes()) for path in small[:5])
