"""Bodies with too many values are refused before they are parsed."""

import json

import pytest

from ostinato.web.values import MOST_VALUES, TooManyValuesError, parse_values


@pytest.mark.parametrize("unit", [b"{},", b"[],", b"0,", b"[", b'{"a":', b'"",'])
def test_small_values_in_great_number_are_refused(unit: bytes) -> None:
    with pytest.raises(TooManyValuesError, match="send less at once"):
        parse_values(b"[" + unit * MOST_VALUES + b"0]")


def test_text_may_hold_any_number_of_separators() -> None:
    for text in ("[{,}]" * MOST_VALUES, '\\"[,' * MOST_VALUES, "\\" * 100_001 + "," * MOST_VALUES):
        assert parse_values(json.dumps({"text": text}).encode()) == {"text": text}


@pytest.mark.parametrize(
    "body", [b"", b"{", b'"' + b'\\"' * 300_000, b'"' + b"[" * 300_000, b"\xff", b'"\\ud800"']
)
def test_invalid_json_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - orjson says where
        parse_values(body)
