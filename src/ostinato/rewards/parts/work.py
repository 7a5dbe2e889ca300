"""The work of a session, read from its recorded tokens: calls, results, last message, tokens by kind.

The tokens are what the model read and wrote, so no harness has to be trusted, and somebody else's harness is
read in the same way.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ostinato.model.families import Parsed, Renderer
from ostinato.rewards.signals import without_side_calls
from ostinato.types import Signal, Turn, TurnKind

READS = frozenset({"read", "Read"})
PLANS = frozenset({"todo_write", "TodoWrite", "todowrite", "update_plan"})
SHELLS = frozenset({"bash", "Bash", "shell"})
EDITS = frozenset({"edit", "write", "apply_patch", "Edit", "Write"})
"""The names under which the profiles of the harness offer these tools."""
RESULT = re.compile(r"<tool_response>\n?(.*?)</tool_response>", re.DOTALL)
ONE_RESULT = re.compile(r"<tool_response>\n?(.*)</tool_response>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMade:
    """One tool call that could be read, and its result.

    >>> CallMade(name="read", arguments={"path": "calc.py"}, result="", turn="s1/0").name
    'read'
    """

    name: str
    arguments: Mapping[str, Any]
    result: str | None
    """The text that the model read; None where the next turn does not extend this one's tokens."""
    turn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The six counts of a session's effort.

    `thinking`, `calls_text` and `final` add up to the sampled tokens: reasoning and the text before a call,
    summaries included; the calls; messages without a call.

    >>> Effort(turns=2, calls=1, thinking=0, calls_text=12, outputs=30, final=3).turns
    2
    """

    turns: int
    calls: int
    thinking: int
    calls_text: int
    outputs: int
    """Tokens that came between two turns of a segment: results, errors, and the marks around them."""
    final: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The turns and signals of a session with everything read from them; side calls are left out."""

    turns: Sequence[Turn]
    signals: Sequence[Signal]
    calls: Sequence[CallMade]
    final: str
    """The text of the last turn, when it calls no tool; else empty."""
    final_turn: str | None
    effort: Effort


def work_of(turns: Sequence[Turn], signals: Sequence[Signal], renderer: Renderer) -> Work:
    """Return the work of a session, whose turns were sampled in the format of `renderer`, in order."""
    turns = without_side_calls(turns)
    parsed = [renderer.parse(turn.completion.ids) for turn in turns]
    between = [_between(*pair) for pair in pairwise(turns)]
    told = [None if ids is None else renderer.tokenizer.decode(ids) for ids in between]
    calls = [
        call
        for turn, read, text in zip(turns, parsed, [*told, None][: len(turns)], strict=True)
        for call in _calls(turn, read, text)
    ]
    said = bool(turns) and turns[-1].kind is TurnKind.MAIN and not parsed[-1].tool_calls
    split = [_split(*pair, renderer) for pair in zip(turns, parsed, strict=True)]
    return Work(
        turns=turns,
        signals=signals,
        calls=calls,
        final=parsed[-1].content if said else "",
        final_turn=turns[-1].id if said else None,
        effort=Effort(
            turns=len(turns),
            calls=len(calls),
            thinking=sum(thinking for thinking, _, _ in split),
            calls_text=sum(text for _, text, _ in split),
            final=sum(final for _, _, final in split),
            outputs=sum(len(ids) for ids in between if ids is not None),
        ),
    )


def _between(before: Turn, after: Turn) -> tuple[int, ...] | None:
    """Return the ids between two turns; None when the later one does not go on from the earlier one."""
    history = before.prompt_ids + before.completion.ids
    return after.prompt_ids[len(history) :] if after.prompt_ids[: len(history)] == history else None


def _calls(turn: Turn, read: Parsed, text: str | None) -> list[CallMade]:
    """Return the calls of a turn. Results that cannot be told apart are all the whole text.

    A result may hold the mark of an end, so one result alone reaches to the last mark.
    """
    results: list[str | None] = [text] * len(read.tool_calls)
    if text is not None:
        found = (ONE_RESULT if len(read.tool_calls) == 1 else RESULT).findall(text)
        results = [each.removesuffix("\n") for each in found] if len(found) == len(results) else results
    return [
        CallMade(name=call.name, arguments=call.arguments, result=result, turn=turn.id)
        for call, result in zip(read.tool_calls, results, strict=True)
    ]


def _split(turn: Turn, read: Parsed, renderer: Renderer) -> tuple[int, int, int]:
    """Return the sampled tokens of a turn that are thinking, calls and message, in this order."""
    ids = turn.completion.ids
    if turn.kind is TurnKind.SUMMARY:
        return len(ids), 0, 0
    text = renderer.tokenizer.decode(ids)
    marks = [text.index(mark) for mark in renderer.call_marks if mark in text]
    if marks or read.tool_calls:
        thinking = _tokens_before(ids, min(marks, default=0), renderer)
        return thinking, len(ids) - thinking, 0
    close = renderer.think[1]
    end = text.find(close) + len(close) if close and close in text else 0
    thinking = _tokens_before(ids, end, renderer)
    return thinking, 0, len(ids) - thinking


def _tokens_before(ids: Sequence[int], end: int, renderer: Renderer) -> int:
    """Return the number of leading tokens whose text ends at or before the character `end`."""
    if end == 0:
        return 0
    lengths = range(1, len(ids) + 1)
    return bisect_right(lengths, end, key=lambda n: len(renderer.tokenizer.decode(ids[:n])))
