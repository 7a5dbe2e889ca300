"""The turns of a session: all of them as a graph, and some of them with what was heard and said.

A turn's row holds only what its prompt adds to the turn that it continues, so a session of five thousand
turns is read as fast as one of five.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from ostinato.dashboard.reading.base import Answer, first_version, version_of
from ostinato.dashboard.text.diff import of_call
from ostinato.dashboard.text.lexicon import Lexicon, Spoken
from ostinato.model.families import Parsed, ParsedCall
from ostinato.store.sql.row_conversion import unpack_floats, unpack_ints, unpack_runs
from ostinato.store.sql.schema import states, turns
from ostinato.types import TEACHER_VERSION, Distribution
from ostinato.web.plain import clean, line_of, shown

MOST_TOKENS = 1_500
"""The tokens of one answer that a page shows; the page of the turn alone shows more."""
MOST_ALONE = 20_000
SURPRISES = (-0.05, -0.25, -0.7, -1.6, -3.0)
"""The log-probabilities below which a token is more surprising: 95, 78, 50, 20 and 5 %."""
HUES = 6
"""The number of colours for versions; the next version takes the first colour again."""


def outline(connection: Connection, session_id: str) -> list[Answer]:
    """Return every turn of a session without its tokens, in order."""
    turn = turns.c
    query = (
        select(
            turn.number, turn.segment, turn.base, turn.kind, turn.finish, turn.broken, turn.untrainable,
            turn.arm, turn.started_at, turn.latency_s, turn.temperature,
            (func.length(turn.ids) / 4).label("tokens"), (func.length(turn.prompt_ids) / 4).label("added"),
            first_version().label("version"), states.c.state, states.c.reason,
        )
        .select_from(turns.outerjoin(states, states.c.turn_id == turn.id))
        .where(turn.session_id == session_id)
        .order_by(turn.number)
    )  # fmt: skip
    rows = [dict(row) for row in connection.execute(query).mappings()]
    for row in rows:
        row["version"] = version_of(row["version"])
        row["tokens"], row["added"] = int(row["tokens"]), int(row["added"])
        row["arm"] = line_of(row["arm"], 40)
        for name in ("broken", "untrainable", "reason"):
            row[name] = row[name] and line_of(row[name], 200)
    return rows


def told(
    connection: Connection, session_id: str, some: Sequence[Answer], lexicon: Lexicon | None, *, alone: bool
) -> list[Answer]:
    """Return turns of the outline with their messages, calls and tokens; without a lexicon only numbers."""
    if not some:
        return []
    turn = turns.c
    numbers = [one["number"] for one in some]
    query = select(
        turn.number, turn.base, turn.prompt_ids, turn.ids, turn.logprobs, turn.versions, turn.distribution
    ).where(turn.session_id == session_id, turn.number.in_(numbers))
    rows = {row.number: row for row in connection.execute(query)}
    most = MOST_ALONE if alone else MOST_TOKENS
    return [dict(one) | _told(rows[one["number"]], lexicon, most) for one in some if one["number"] in rows]


def _told(row: Any, lexicon: Lexicon | None, most: int) -> Answer:
    ids, logprobs = unpack_ints(row.ids), unpack_floats(row.logprobs)
    versions = unpack_runs(row.versions)
    known = row.distribution != Distribution.UNKNOWN.value
    drawn = [p for p, version in zip(logprobs, versions, strict=False) if version != TEACHER_VERSION]
    answer = {
        "heard": [],
        "said": None,
        "tokens_shown": _tokens(ids[:most], logprobs, versions, lexicon, known=known),
        "tokens_cut": max(0, len(ids) - most),
        "versions": sorted(set(versions)),
        "mean_logprob": sum(drawn) / len(drawn) if drawn and known else None,
    }
    if lexicon is None:
        return answer
    heard = lexicon.messages(unpack_ints(row.prompt_ids))
    parsed = lexicon.answer(ids)
    return answer | {"heard": _heard(heard, row.base), "said": _said(parsed)}


def _heard(messages: Sequence[Spoken], base: int | None) -> list[Answer]:
    heard, result = [], 0
    for message in messages:
        text = shown(message.text)
        call = None
        if message.role == "result":
            call, result = (None if base is None else f"t{base}c{result}"), result + 1
        heard.append(
            {
                "role": line_of(message.role, 20),
                "text": text.text,
                "cut": text.cut,
                "tools": [line_of(name, 60) for name in message.tools],
                "call": call,
            }
        )
    return heard


def _said(parsed: Parsed) -> Answer:
    text, reasoning = shown(parsed.content), shown(parsed.reasoning)
    return {
        "text": text.text,
        "cut": text.cut,
        "reasoning": reasoning.text,
        "broken": parsed.broken and line_of(parsed.broken, 200),
        "calls": [_call(call) for call in parsed.tool_calls],
    }


def _call(call: ParsedCall) -> Answer:
    diff = of_call(call.arguments)
    return {
        "name": line_of(call.name, 80),
        "summary": line_of(_summary(call.arguments), 120),
        "diff": diff,
        "arguments": [] if diff else _arguments(call.arguments),
    }


def _summary(arguments: Mapping[str, Any]) -> str:
    for name in ("path", "file_path", "command", "pattern", "query", "question", "url"):
        if isinstance(arguments.get(name), str):
            return str(arguments[name])
    return ""


def _arguments(arguments: Mapping[str, Any]) -> list[Answer]:
    pairs = []
    for name, value in arguments.items():
        text = shown(value if isinstance(value, str) else repr(value), 4_000)
        pairs.append({"name": line_of(name, 60), "text": text.text, "cut": text.cut})
    return pairs


def _tokens(
    ids: Sequence[int],
    logprobs: Sequence[float],
    versions: Sequence[int],
    lexicon: Lexicon | None,
    *,
    known: bool,
) -> list[Answer]:
    """Return each token with its text, where it may be shown, its probability and its version."""
    texts = lexicon.tokens(ids) if lexicon is not None else [None] * len(ids)
    return [
        {
            "text": None if text is None else _visible(text.text),
            "call": None if text is None else text.call,
            "id": id if text is not None else None,
            "logprob": round(p, 4) if known and math.isfinite(p) else None,
            "surprise": sum(p < edge for edge in SURPRISES) if known and version != TEACHER_VERSION else None,
            "version": version,
            "hue": version % HUES if version >= 0 else None,
        }
        for id, p, version, text in zip(ids, logprobs, versions, texts, strict=False)
    ]


def _visible(text: str) -> str:
    return clean(text).replace("\n", "⏎\n").replace("\t", "⇥\t") or "·"
