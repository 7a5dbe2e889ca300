"""Looks at candidates on recorded sessions before people meet them: `ostinato bench looks`, and the gate."""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato import extras
from ostinato.store.commands import FOLDER_HELP
from ostinato.store.config import meant_folder

if TYPE_CHECKING:
    from ostinato.bench.looks import Look, Ordering, SeenSession
    from ostinato.loop.base import Resources
    from ostinato.loop.live_config import LiveConfig
    from ostinato.loop.run import Run
    from ostinato.model.decoder import Decoder
    from ostinato.rewards.live.definition import LiveDefinition
    from ostinato.store import Store
    from ostinato.types import Sample, Session

DONE, WRONG = 0, 2


def register(group: Any) -> None:
    """Add `looks` to the commands of `ostinato bench`."""
    looks = group.add_parser(
        "looks", help="order versions by what recorded sessions say of them; it promotes none"
    )
    looks.add_argument("--versions", type=int, nargs="+", required=True, help="the candidates of the run")
    looks.add_argument("--directory", type=Path, help=FOLDER_HELP)
    looks.add_argument("--sessions", type=int, default=1_000, help="the newest sessions at most")
    looks.add_argument("--json", action="store_true", help="print JSON")
    looks.set_defaults(run=_looks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A rewarded session, ready to be scored.

    >>> Recorded(user="ada", reward=1.0, samples=()).samples
    ()
    """

    user: str
    reward: float
    samples: "tuple[Sample, ...]"


def _looks(options: argparse.Namespace) -> int:
    from contextlib import closing

    from ostinato.config import load
    from ostinato.loop.config import RunConfig
    from ostinato.loop.run import Run

    if options.sessions < 1 or len(set(options.versions)) < len(options.versions):
        print("ostinato: --sessions is at least 1, and --versions names each once", file=sys.stderr)  # noqa: T201
        return WRONG
    extras.need("torch", "`ostinato bench looks`")
    run = Run(directory=meant_folder(options.directory))
    live = load(RunConfig, run.config).live
    with closing(run.open_store()) as store:
        order, sessions, unseen = looked(
            run, store, live, options.versions, most=options.sessions, as_of=time.time()
        )
    if options.json:
        print(json.dumps({**asdict(order), "first": order.first, "sessions": sessions, **unseen}))  # noqa: T201
        return DONE
    print("\n".join(told(order, sessions, unseen)))  # noqa: T201
    return DONE


def look_of(resources: "Resources", version: int, as_of: float) -> "Look | None":
    """Return what sessions that had settled at `as_of` say of a candidate; None where nobody is to look, or
    where the weights are too large for this process: it loads them as the local trainer does.
    """
    config = resources.config
    if not config.live.looks or config.trainer.kind != "local":
        return None
    order, _, _ = looked(
        resources.run, resources.store, config.live, [version], most=config.live.looks, as_of=as_of
    )
    return order.looks[0]


def looked(
    run: "Run", store: "Store", live: "LiveConfig", versions: Sequence[int], *, most: int, as_of: float
) -> "tuple[Ordering, int, dict[str, int]]":
    """Return the order of the versions on the `most` newest sessions, the number of these, and those of the
    others by reason.
    """
    from ostinato.bench.looks import look
    from ostinato.loop.live_config import live_definition
    from ostinato.loop.run import START
    from ostinato.model.checkpoint import load

    decoder, _, _ = load(run.checkpoint(START))
    context = decoder.config.max_positions
    sessions, unseen = recorded(store, live_definition(live), most, context, as_of)
    return look(ratios(run, decoder, sessions, versions), versions), len(sessions), unseen


def recorded(
    store: "Store", definition: "LiveDefinition", most: int, context: int, as_of: float
) -> "tuple[list[Recorded], dict[str, int]]":
    """Return the newest sessions that can be looked at, and the numbers of the others by reason.

    They are of people who agreed, and had settled at `as_of`. None was trained on: a version remembers which
    of those were praised. A session of which not every turn can be scored is left out as a whole.
    """
    from ostinato.rewards.signals import SignalValueError
    from ostinato.store.pages import latest_sessions
    from ostinato.store.purge import trained_sessions
    from ostinato.train.samples import BESIDE_THE_WORK, UntrainableError, samples_of, trainable
    from ostinato.types import Ending

    fresh: list[Session] = []
    found: list[Recorded] = []
    unseen = {"trained_on": 0, "young": 0, "unscored": 0}
    for page in latest_sessions(store, 2 * most):
        ended = [
            each for each in page if each.started_at <= as_of and each.ending is not Ending.INFRASTRUCTURE
        ]
        given = store.accounts.may_train_on(ended)
        with store.database.read() as connection:
            trained = trained_sessions(connection, [each.id for each in given])
        unseen["trained_on"] += len(trained)
        fresh += [each for each in given if each.id not in trained]
        if len(fresh) >= most:
            break
    fresh = fresh[:most]
    ids = [each.id for each in fresh]
    turns_of, signals_of = store.turns_of(ids), store.signals_of(ids)
    for session in fresh:
        turns = turns_of.get(session.id, [])
        try:
            reward = definition.settled(session.id, turns, signals_of.get(session.id, []), as_of=as_of)
            kept, others = trainable(turns)
            samples = samples_of(kept, 0.0) if not others.keys() - {BESIDE_THE_WORK} else []
        except (UntrainableError, SignalValueError):
            unseen["unscored"] += 1
            continue
        if reward is None:
            unseen["young"] += 1
        elif not samples or max(len(each.ids) for each in samples) > context:
            unseen["unscored"] += 1
        else:
            person = f"{session.organisation}/{session.user}"
            found.append(Recorded(user=person, reward=reward.total, samples=tuple(samples)))
    return found, unseen


def ratios(
    run: "Run", decoder: "Decoder", sessions: Sequence[Recorded], versions: Iterable[int]
) -> "list[SeenSession]":
    """Return the sessions as the versions see them; `decoder` is filled with each one's weights in turn.

    Raises SyncError for a version that the run has not.
    """
    from ostinato.bench.looks import SeenSession
    from ostinato.sync import Subscriber
    from ostinato.train.policy import log_ratios

    weights = Subscriber(run.open_objects())
    samples = [sample for each in sessions for sample in each.samples]
    found: dict[int, dict[str, float]] = {}
    for version in versions:
        decoder.load_state_dict(weights.fetch(version))
        found[version] = log_ratios(decoder, samples)
    return [
        SeenSession(
            user=each.user,
            reward=each.reward,
            log_ratios={version: some[each.samples[0].session_id] for version, some in found.items()},
        )
        for each in sessions
    ]


def told(order: "Ordering", sessions: int, unseen: dict[str, int]) -> Iterable[str]:
    """Yield what a person reads: each candidate, and which are told apart."""
    left = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in unseen.items())
    yield f"{sessions} recorded sessions that no version was trained on (left out: {left})"
    for each in order.looks:
        yield f"version {each.version}: {each.words}"
    for better, worse, by in order.apart:
        yield f"version {better} before version {worse}: {by}"
    if not order.apart:
        yield "none is told apart from another"
    yield "this orders candidates and promotes none"
