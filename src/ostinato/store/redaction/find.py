"""The search for secrets in text, by their form, by their name, or because they look random.

A *form* is the prefix that a vendor gives a token, the frame of a private key, or the place of a password in
a file or command of a known layout (`known_forms.py`). A *name* is a word such as `password` before an equals
sign or a colon; its value counts unless it reads like a placeholder or like code (`by_name.py`,
`likelihood.py`). A *random* string is long and quoted, and its characters are spread as only random ones are.

The time is linear in the text, also in text that was made to be slow: `python -m benchmarks.redaction`
measures it. Redaction is no guarantee: a password that is a plain word, with no name beside it, looks like
any word.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ostinato.store.redaction.by_name import Match, by_chance, by_name, is_named
from ostinato.store.redaction.known_forms import by_form, by_place
from ostinato.store.redaction.layouts import by_layout
from ostinato.store.redaction.run_ends import RunEnds
from ostinato.store.redaction.views import ESCAPE, JOINT, View, decoded

WINDOW = 2**18
SHARED = 2**14
"""Characters that neighbouring windows share, which is more than a private key has."""
UNBROKEN = r"""[^\s"'`]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """The place of a secret in a text.

    >>> [text[s.start : s.end] for text in ["x = 'AKIAIOSFODNN7EXAMPLQ'"] for s in find(text)]
    ['AKIAIOSFODNN7EXAMPLQ']
    """

    kind: str
    start: int
    end: int


def find(text: str) -> list[Secret]:
    """Return the secrets in `text`, in order; overlapping ones are joined."""
    secrets: list[Secret] = []
    for secret in sorted(_candidates(text), key=lambda each: (each.start, -each.end)):
        if not secrets or secret.start >= secrets[-1].end:
            secrets.append(secret)
        elif secret.end > secrets[-1].end:
            secrets[-1] = Secret(kind=secrets[-1].kind, start=secrets[-1].start, end=secret.end)
    return secrets


def redact(text: str) -> str:
    """Return `text` with each secret replaced by `[redacted KIND]`; the same text if there is none."""
    secrets = find(text)
    if not secrets:
        return text
    pieces, at = [], 0
    for secret in secrets:
        pieces += [text[at : secret.start], f"[redacted {secret.kind}]"]
        at = secret.end
    return "".join([*pieces, text[at:]])


def redact_json(value: Any) -> Any:
    """Return a JSON value with every text in it redacted; keys count as names, as in `{"password": "…"}`."""
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
        after = RunEnds(text).end(UNBROKEN, end)
        for kind, first, last in _searched(part):
            # A match that ends with its window may go on in the next one, where nothing shows that it is
            # secret.
            yield Secret(kind=kind, start=start + first, end=after if last == len(part) else start + last)


def _searched(text: str) -> Iterator[Match]:
    """Yield the secrets in `text`, in its decoded view, and over the joints of lines in its joined view."""
    yield from _in_lines(text)
    yield from by_layout(text)
    if ESCAPE.search(text):
        view = View(text, ESCAPE, decoded)
        yield from ((kind, *view.place(*span)) for kind, *span in _in_lines(view.text))
    if JOINT.search(text):
        view = View(text, JOINT, lambda _: "")
        for kind, start, end in _in_lines(view.text):
            first, last = view.place(start, end)
            if last - first > end - start:
                yield kind, first, last


def _in_lines(text: str) -> Iterator[Match]:
    return chain(by_form(text), by_place(text), by_name(text), by_chance(text))


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of pieces that are searched one by one; each overlaps the one before.

    A search holds the interpreter, and so every other thread, until it finds a match.
    """
    start, size = 0, len(text)
    while size - start > WINDOW:
        end = start + WINDOW
        line = text.rfind("\n", end - SHARED, end) + 1
        end = line or end
        yield start, end
        start = end - SHARED
    yield start, size
