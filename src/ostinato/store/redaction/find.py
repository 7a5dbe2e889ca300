"""Secrets in text: found by their form, by what they are called, or by looking like nothing but chance.

A *form* is what a vendor prints in front of a token, the frame of a private key, or the place of a password
in a file or command of a known layout (`forms.py`). A *name* is a word such as `password` before an equals
sign or a colon; its value counts unless it reads like a placeholder or like code (`named.py`, `judge.py`).
*Chance* is a long quoted string whose characters are spread as only random ones are.

The time is linear in the text, whoever wrote it: `python -m benchmarks.redaction` measures that.
Redaction is not proof: a password that is a plain word, with no name beside it, looks like any other word.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ostinato.store.redaction.by_name import by_chance, by_name, is_named
from ostinato.store.redaction.known_forms import Found, by_form, by_place
from ostinato.store.redaction.run_ends import Runs

WINDOW = 2**18
SHARED = 2**14
"""Characters that neighbouring windows share: more than a private key has."""
UNBROKEN = r"""[^\s"'`]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """Where one is in a text.

    >>> [text[s.start : s.end] for text in ["x = 'AKIAIOSFODNN7EXAMPLQ'"] for s in find(text)]
    ['AKIAIOSFODNN7EXAMPLQ']
    """

    kind: str
    start: int
    end: int


def find(text: str) -> list[Secret]:
    """Secrets in `text`, in order, none inside another."""
    found = sorted(_candidates(text), key=lambda secret: (secret.start, -secret.end))
    kept: list[Secret] = []
    for secret in found:
        if not kept or secret.start >= kept[-1].end:
            kept.append(secret)
        elif secret.end > kept[-1].end:
            kept[-1] = Secret(kind=kept[-1].kind, start=kept[-1].start, end=secret.end)
    return kept


def redact(text: str) -> str:
    """`text` with each secret replaced by `[redacted KIND]`; the same text if there is none."""
    secrets = find(text)
    if not secrets:
        return text
    pieces, at = [], 0
    for secret in secrets:
        pieces += [text[at : secret.start], f"[redacted {secret.kind}]"]
        at = secret.end
    return "".join([*pieces, text[at:]])


def redact_json(value: Any) -> Any:
    """A JSON value with every text in it redacted; a name before a text counts, as in `{"password": "…"}`."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {redact(str(key)): _redact_named(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [redact_json(each) for each in value]
    return value


def _redact_named(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return redact_json(value)
    return "[redacted named]" if is_named(name, value) else redact(value)


def _candidates(text: str) -> Iterator[Secret]:
    for start, end in _windows(text):
        part = text[start:end]
        after = Runs(text).end(UNBROKEN, end)
        for kind, first, last in _found(part):
            # What ends with its window may go on in the next one, where nothing says what it is.
            yield Secret(kind=kind, start=start + first, end=after if last == len(part) else start + last)


def _found(text: str) -> Iterator[Found]:
    yield from by_form(text)
    yield from by_place(text)
    yield from by_name(text)
    yield from by_chance(text)


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """Pieces that are searched one by one, each with the end of the one before.

    A search holds the interpreter, and so every other thread, until it finds something.
    """
    start, size = 0, len(text)
    while size - start > WINDOW:
        end = start + WINDOW
        line = text.rfind("\n", end - SHARED, end) + 1
        end = line or end
        yield start, end
        start = end - SHARED
    yield start, size
