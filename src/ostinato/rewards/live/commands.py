"""`ostinato rewards`: what a session was worth and why, and scoring again when facts arrived late."""

import argparse
import json
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.store.commands import add_record
from ostinato.types import PartState, Reward, Session, Signal, Source
from ostinato.web.plain import line_of

if TYPE_CHECKING:
    from ostinato.rewards.live.definition import LiveDefinition
    from ostinato.store import Store

DONE, WRONG = 0, 2
STATES = {PartState.OBSERVED: "none seen"}
"""The words for parts without a fact, where they are others than the state's."""


def register(commands: Any) -> None:
    """Add `rewards` and its commands to the subparsers of `ostinato`."""
    parser = commands.add_parser("rewards")
    group = parser.add_subparsers(required=True, metavar="COMMAND")
    explain = group.add_parser("explain", help="every part of a session's reward, its state and evidence")
    explain.add_argument("session", help="the session's id, or the beginning of it")
    _common(explain, _explain)
    score = group.add_parser("score", help="score sessions again by all that is known, and keep what changed")
    every = "ids, or their beginnings (default: every live session that has ended)"
    score.add_argument("session", nargs="*", help=every)
    _common(score, _score)


def _common(parser: argparse.ArgumentParser, run: Any) -> None:
    add_record(parser)
    parser.add_argument("--definition", type=Path, help="TOML file (default: the definition that ships)")
    parser.add_argument("--as-of", type=float, metavar="SECONDS", help="since the epoch (default: now)")
    parser.add_argument("--json", action="store_true", help="print JSON, the last line one object")
    parser.set_defaults(run=lambda options: _open(run, options))


def _open(run: Any, options: argparse.Namespace) -> int:
    from ostinato.rewards.definition import DefinitionError
    from ostinato.rewards.live.definition import LIVE, read_definition
    from ostinato.store import Store
    from ostinato.store.config import meant_record

    place = meant_record(options.directory, options.store).place
    try:
        definition = LIVE if options.definition is None else read_definition(options.definition)
    except DefinitionError as error:
        return _complain(str(error))
    as_of = time.time() if options.as_of is None else options.as_of
    with closing(Store.open(place)) as store:
        status: int = run(store, definition, options, as_of)
        return status


def _score(store: "Store", definition: "LiveDefinition", options: argparse.Namespace, as_of: float) -> int:
    from ostinato.rewards.live.rescore import rescore
    from ostinato.store.abbreviation import session_meant

    sessions = store.sessions(source=Source.LIVE, ended=True)
    if options.session:
        chosen = {session.id: session for session in sessions}
        meant = [session_meant(store, given) for given in options.session]
        if unknown := [id_ for id_ in meant if id_ not in chosen]:
            return _complain(f"{unknown[0]} is no live session that has ended in this record")
        sessions = [chosen[id_] for id_ in meant]
    done = rescore(store, definition, sessions, as_of=as_of)
    if options.json:
        facts = {"sessions": done.sessions, "changed": done.changed, "without_reward": done.without_reward}
        print(json.dumps(facts | {"definition": definition.hash(), "as_of": as_of}))  # noqa: T201
    else:
        print(  # noqa: T201
            f"{done.sessions} sessions scored by {definition.name} {definition.hash()}: "
            f"{done.changed} changed, {done.without_reward} without a reward"
        )
    return DONE


def _explain(store: "Store", definition: "LiveDefinition", options: argparse.Namespace, as_of: float) -> int:
    from ostinato.rewards.live.rescore import canonical
    from ostinato.store.abbreviation import session_meant

    session = store.session(session_meant(store, options.session))
    assert session is not None
    turns, signals = store.turns(session.id), store.signals(session.id)
    reward = definition.score(session.id, turns, signals, as_of=as_of)
    if options.json:
        print(canonical(reward).decode())  # noqa: T201
        return DONE
    ready = _ready(store, session, definition.trains_at(session.id, turns, signals) if turns else None)
    for line in explained(session, reward, signals, ready):
        print(line)  # noqa: T201
    return DONE


def _ready(store: "Store", session: Session, settles_at: float | None) -> str:
    """Return what a session was trained into, or when it will be trained on, or why it never is."""
    from ostinato.store.purge import trained_on

    with store.database.read() as connection:
        if into := trained_on(connection, [session.id]):
            return f"trained into version {', '.join(map(str, into))}"
    if session.source is not Source.LIVE:
        return f"source {session.source}: no live reward trains such a session"
    if store.purged([session.id]):
        return "never trained on any more: it was removed"
    if not session.consent:
        return "never trained on: no consent when it began"
    if not store.accounts.consented([owner := (session.organisation, session.user)])[owner]:
        return "not trained on: consent was taken back"
    return "no turns" if settles_at is None else f"trained on from {_moment(settles_at)}"


def explained(session: Session, reward: Reward, signals: list[Signal], ready: str) -> list[str]:
    """Return the lines that say what each part of a reward is worth, its state, and what it was read from.

    The parts that are zero and rest on nothing have one line a state. `ready` says when it is trained on.
    """
    known = {signal.id: signal for signal in signals}
    head = (session.id, line_of(session.user, 60), session.ending or "open", f"{reward.total:+.3f}", ready)
    lines = ["  ".join(head)]
    idle: dict[str, list[str]] = {}
    for part in reward.parts:
        if not part.value and not part.evidence:
            idle.setdefault(STATES.get(part.state, part.state.value), []).append(part.name)
            continue
        lines.append(f"  {part.value:+.3f}  {part.state.value:<9} {part.name}")
        lines += [f"          {_evidence(known.get(id_), id_)}" for id_ in part.evidence]
    return lines + [f"   0.000  {state:<9} {', '.join(names)}" for state, names in idle.items()]


def _evidence(signal: Signal | None, id_: str) -> str:
    if signal is None:
        return f"turn {id_}"
    value = line_of(signal.value, 80) if isinstance(signal.value, str) else str(signal.value)
    return f"{_moment(signal.observed_at)}  {signal.kind.value} {value}  {id_}"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")


def _complain(message: str) -> int:
    print(f"ostinato rewards: {message}", file=sys.stderr)  # noqa: T201
    return WRONG
