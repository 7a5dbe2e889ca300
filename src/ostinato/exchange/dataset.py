"""A data set of recorded sessions, for other trainers: chat rows, token rows, or one file a session.

It is written into a hidden folder beside its place and renamed when it is whole, so no half of one is ever
found in that place.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from ostinato import __version__
from ostinato.exchange.conversations import Dialogue, ExchangeError, dialogues, events_of
from ostinato.exchange.record import WITH_TURNS, Chosen, OpenRecord
from ostinato.harness.export import FORMATS
from ostinato.model.families import Renderer
from ostinato.store.redaction.find import find
from ostinato.train.samples import UntrainableError, samples_of, trainable
from ostinato.types import Reward, Sample, Session, Turn

CHAT, TOKENS = "jsonl", "tokens"
FILE = "train.jsonl"
NOT_OF_A_RECORD = {"jsonl", "openai", "agent-trace"}
"""Exporters of what only the log of a session has, or that the chat rows are already."""
NOT_LEARNT = -100
"""The label of a token that nothing is learnt from, in torch and what builds on it."""
SECRET = "a secret in its tokens"  # noqa: S105


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The sessions of a data set.

    >>> Selection(chosen={"source": "live"}, reward=0.5).unconsented
    False
    """

    chosen: Chosen
    reward: float | None = None
    """The least total of the last recorded reward; None takes sessions without one too."""
    unconsented: bool = False
    """Also sessions that may not be trained on, for the operator's own eyes."""


@dataclass(slots=True)
class Exported:
    """The figures of an export."""

    sessions: int = 0
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Sessions by the reason why they are not in it."""
    people: dict[tuple[str, str], int] = field(default_factory=dict)
    """Numbers that stand for people, in the order in which they appear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSession:
    """One session of a data set with its turns, its last reward, and the number of its person."""

    session: Session
    turns: Sequence[Turn]
    reward: Reward | None
    person: int


def export(run: OpenRecord, selection: Selection, out: Path, format: str, renderer: Renderer) -> Exported:
    """Write a data set into the new folder `out`. Raises ExchangeError, StoreError."""
    known = formats()
    if format not in known:
        raise ExchangeError(f"no format {format!r}: use {', '.join(known)}")
    figures = Exported()
    with _whole(out) as folder:
        if format in (CHAT, TOKENS):
            rows = _chat_rows if format == CHAT else _token_rows
            with (folder / FILE).open("w", encoding="utf-8") as file:
                for row in _rows(run, selection, renderer, figures, rows):
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                    figures.rows += 1
            (folder / "README.md").write_text(_card(format, figures), encoding="utf-8")
        else:
            for name, text in _rows(run, selection, renderer, figures, _files(format)):
                (folder / name).write_text(text, encoding="utf-8")
                figures.rows += 1
        if not figures.rows:
            told = ", ".join(f"{why} ({count})" for why, count in figures.left_out.items())
            raise ExchangeError(f"no session is left to export: {told or 'none was chosen'}")
    return figures


def formats() -> list[str]:
    """Return the formats there are: ours, and the exporters of session logs that a record is enough for."""
    return [CHAT, TOKENS, *(name for name in FORMATS if name not in NOT_OF_A_RECORD)]


def _rows(
    run: OpenRecord,
    selection: Selection,
    renderer: Renderer,
    figures: Exported,
    of: Callable[[ChosenSession, Renderer], Sequence[Any]],
) -> Iterator[Any]:
    """Yield what `of` makes of each chosen session, and count the others."""
    for one in _chosen(run, selection, figures):
        try:
            made = of(one, renderer)
        except UntrainableError as error:
            figures.left_out[error.reason] += 1
            continue
        figures.sessions += 1
        yield from made


def _chosen(run: OpenRecord, selection: Selection, figures: Exported) -> Iterator[ChosenSession]:
    for page in run.pages(WITH_TURNS, selection.chosen):
        ids = [session.id for session in page]
        allowed = set(ids) if selection.unconsented else run.consented(page)
        last, turns = run.last_rewards(ids), run.store.turns_of([id_ for id_ in ids if id_ in allowed])
        for session in page:
            reward = next(iter(last.get(session.id, ())), None)
            least = selection.reward
            if session.id not in allowed:
                figures.left_out["no consent"] += 1
            elif least is not None and (reward is None or reward.total < least):
                figures.left_out["less reward, or none"] += 1
            elif not turns.get(session.id):
                figures.left_out["no turns"] += 1
            else:
                who = (session.organisation, session.user)
                person = figures.people.setdefault(who, len(figures.people))
                yield ChosenSession(session=session, turns=turns[session.id], reward=reward, person=person)


def _chat_rows(one: ChosenSession, renderer: Renderer) -> list[dict[str, Any]]:
    """Return a row for each segment: messages, and tools as JSON, since every row may have other keys."""
    return [
        {
            "messages": list(each.messages),
            "tools": json.dumps(each.tools, ensure_ascii=False),
            "metadata": {**_metadata(one), "segment": each.segment},
        }
        for each in dialogues(one.turns, renderer)
    ]


def _token_rows(one: ChosenSession, renderer: Renderer) -> list[dict[str, Any]]:
    """Return a row for each segment that the policy gradient can learn from, token for token as sampled.

    Raises UntrainableError where there is none.
    """
    kept, others = trainable(one.turns)
    if not kept:
        raise UntrainableError(f"session {one.session.id}", next(iter(others)))
    rows = samples_of(kept, 0.0)
    if any(find(renderer.tokenizer.decode(row.ids)) for row in rows):
        raise UntrainableError(f"session {one.session.id}", SECRET)
    return [_token_row(row, one) for row in rows]


def _token_row(row: Sample, one: ChosenSession) -> dict[str, Any]:
    """Return lists with an entry for each token: the mask twice, as TRL (`labels`) and SkyRL read it."""
    pairs = list(zip(row.ids, row.mask, strict=True))
    return {
        "input_ids": row.ids,
        "labels": [id if sampled else NOT_LEARNT for id, sampled in pairs],
        "loss_mask": [int(sampled) for _, sampled in pairs],
        "logprobs": row.logprobs,
        "temperatures": row.temperatures,
        "versions": row.versions,
        "reward": None if one.reward is None else one.reward.total,
        "metadata": {**_metadata(one), "turns": row.turns},
    }


def _files(format: str) -> Callable[[ChosenSession, Renderer], list[tuple[str, str]]]:
    """Return the function that names and writes one file for each segment of a session."""

    def write(one: ChosenSession, renderer: Renderer) -> list[tuple[str, str]]:
        texts = [
            (each, FORMATS[format](events_of(one.session, each))) for each in dialogues(one.turns, renderer)
        ]
        return [(_name(one.session, each, text), text) for each, text in texts]

    return write


def _name(session: Session, dialogue: Dialogue, text: str) -> str:
    safe = re.sub(r"[^\w.-]", "-", session.id, flags=re.ASCII).lstrip(".")
    suffix = "json" if text.startswith("{") else "txt"
    return f"{safe}.{suffix}" if not dialogue.segment else f"{safe}.{dialogue.segment}.{suffix}"


def _metadata(one: ChosenSession) -> dict[str, Any]:
    """Return what is known of a session without naming its person."""
    session, reward = one.session, one.reward
    return {
        "session": session.id,
        "source": session.source.value,
        "arm": session.arm,
        "person": one.person,
        "harness": session.harness,
        "started_at": session.started_at,
        "ending": session.ending and session.ending.value,
        "reward": None if reward is None else reward.total,
        "reward_parts": [] if reward is None else [_part(part) for part in reward.parts],
    }


def _part(part: Any) -> Mapping[str, Any]:
    return {"name": part.name, "value": part.value, "state": part.state.value}


def _card(format: str, figures: Exported) -> str:
    """Return the dataset card, whose head says to the hub which file is which split."""
    left = "".join(f"- {count} sessions: {why}\n" for why, count in figures.left_out.items())
    return f"""---
configs:
- config_name: default
  data_files:
  - split: train
    path: {FILE}
tags:
- ostinato
- {format}
---

# Sessions of a coding agent

{figures.rows} rows of {figures.sessions} sessions of {len(figures.people)} people, exported as `{format}` by
ostinato {__version__}. Secrets are redacted by rules, which prove nothing; people are numbers. Who may have
it, and under which licence, is for its owner to say.

Left out:

{left or "- nothing" + chr(10)}"""


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """Yield a folder that becomes `out` when the block ends without an error, and goes otherwise."""
    if out.exists():
        raise ExchangeError(f"{out} is there already: name a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    part = Path(mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield part
        part.rename(out)
    except BaseException:
        shutil.rmtree(part)
        raise
