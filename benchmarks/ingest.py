"""Facts of people into the store: events a second, what a kill loses, and signals scored again.

    python -m benchmarks.ingest [--events 100000] [--signals 1000000] [--kills 5] [--json]

- `events_a_second`: events written by one thread in transactions of 100, as an instrumented client's batch
  arrives, by CPU time. Its peer in the same run is `sqlite3.executemany` of the same columns into a table of
  one index, with the same journal and the same transactions: what SQLite itself allows.
- `lost`: a child process writes batches and tells each one that is committed over a pipe; it is killed with
  `kill -9` in the middle. Every event of a told batch must be in the store afterwards.
- `rescore_cpu_s`: signals of sessions of ten signals and four turns, all scored by the shipped definition
  before and again now that every window has ended, on one core. `different`: of the first thousand, those
  whose recorded reward is not, byte for byte, the one computed anew from all of their tokens.

`gateway/signals` parses a batch before this; that is measured by `benchmarks.gateway`.
"""

import argparse
import json
import os
import signal as signals
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Run, quantile, table
from ostinato.rewards.live.definition import LIVE
from ostinato.rewards.live.rescore import Rescored, canonical, rescore
from ostinato.store import Store
from ostinato.types import (
    Completion,
    Ending,
    Event,
    FinishReason,
    Session,
    Signal,
    SignalKind,
    Source,
    Turn,
)

BATCH, EACH, ROUNDS = 100, 10, 6
"""Events in a transaction, signals of a session, and parts of the events that are timed one by one."""
TURNS, SAMPLED, REPLAYED = 4, tuple(range(100)), 1_000
AFTER_A_YEAR = 1.7e9 + 365 * 86_400.0


def events(first: int, count: int) -> list[Event]:
    return [
        Event(
            id=f"event-{number:012d}",
            name="edit.survival",
            user=f"user-{number % 500}",
            organisation="acme",
            session_id=f"session-{number // EACH}",
            turn=number % 5,
            observed_at=1.7e9 + number,
            attributes={
                "edit_id": f"edit-{number}",
                "survival_rate_no_revert": 0.5,
                "time_delay_ms": 300_000,
            },
        )
        for number in range(first, first + count)
    ]


def ingest(folder: Path, count: int) -> list[float]:
    """Return the events a second of CPU time in each part."""
    store, part, speeds = Store.open(folder / "ours.db"), count // ROUNDS, []
    for number in range(ROUNDS):
        batches = [events(number * part + start, BATCH) for start in range(0, part, BATCH)]
        started = time.process_time()
        for batch in batches:
            store.record((), events=batch)
        speeds.append(len(batches) * BATCH / (time.process_time() - started))
    store.close()
    return speeds


def peer(folder: Path, count: int) -> list[float]:
    """Return the same of SQLite by itself."""
    base, part, speeds = sqlite3.connect(folder / "peer.db"), count // ROUNDS, []
    base.isolation_level = None
    base.execute("PRAGMA journal_mode=WAL").close()
    base.execute("PRAGMA synchronous=NORMAL").close()
    base.execute(
        "CREATE TABLE e (id TEXT PRIMARY KEY, name, user, organisation, session, turn, at, attributes)"
    )
    base.execute("CREATE INDEX of_session ON e (session)")
    for number in range(ROUNDS):
        batches = [events(number * part + start, BATCH) for start in range(0, part, BATCH)]
        started = time.process_time()
        for batch in batches:
            rows = [
                (e.id, e.name, e.user, e.organisation, e.session_id, e.turn, e.observed_at, text)
                for e in batch
                for text in [json.dumps(dict(e.attributes))]
            ]
            base.execute("BEGIN IMMEDIATE")
            base.executemany("INSERT INTO e VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            base.execute("COMMIT")
        speeds.append(len(batches) * BATCH / (time.process_time() - started))
    base.close()
    return speeds


def write_until_killed(path: str) -> None:
    """Write batches for ever, and print the number of events that are committed."""
    store, number = Store.open(path), 0
    while True:
        store.record((), events=events(number, BATCH))
        number += BATCH
        print(number, flush=True)


def killed(folder: Path, kills: int) -> dict[str, int]:
    """Return how many told events were lost in all, and how many were told."""
    lost = told_in_all = 0
    for kill in range(kills):
        path = folder / f"killed-{kill}.db"
        command = (sys.executable, "-m", "benchmarks.ingest", "--write", str(path))
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        lines = iter(child.stdout)
        for _ in range(20 + 7 * kill):
            next(lines)
        os.kill(child.pid, signals.SIGKILL)
        rest = [line for line in lines if line.endswith("\n")]  # told before the kill, not read yet
        child.wait()
        told = int(rest[-1]) if rest else (20 + 7 * kill) * BATCH
        store = Store.open(path)
        ids = [event.id for event in events(0, told)]
        found = sum(len(store.known_events(ids[start : start + 900])) for start in range(0, told, 900))
        store.close()
        lost, told_in_all = lost + told - found, told_in_all + told
    return {"kills": kills, "told": told_in_all, "lost": lost}


def sessions_with_signals(store: Store, count: int) -> Iterator[Session]:
    """Record sessions of ten signals and four turns each, and yield them."""
    kinds = (SignalKind.EDIT_KEPT, SignalKind.EDIT_REVERTED, SignalKind.EDIT_EDITED)
    for start in range(0, count // EACH, 500):
        made, turns, told = [], [], []
        for number in range(start, min(start + 500, count // EACH)):
            id_ = f"session-{number}"
            at = 1.7e9 + number
            made.append(
                Session(
                    id=id_,
                    source=Source.LIVE,
                    user=f"user-{number % 500}",
                    arm="champion",
                    task_id=None,
                    harness="h",
                    started_at=at,
                    ending=Ending.FINISHED,
                )
            )
            turns += turns_of(id_, at)
            told += [
                Signal(
                    session_id=id_,
                    kind=kinds[edit % 3],
                    value=1.0,
                    observed_at=at + edit + 2,
                    turn=edit % TURNS,
                    edit=f"e{edit}",
                    id=f"{id_}/{edit}",
                )
                for edit in range(EACH)
            ]
        store.record(turns, told, made)
        yield from made


def turns_of(session: str, at: float) -> Iterator[Turn]:
    """Yield turns of a hundred sampled tokens, each with 200 tokens of what the tools said before it."""
    prompt = tuple[int, ...]()
    for index in range(TURNS):
        prompt = (*prompt, *range(200))
        completion = Completion(
            ids=SAMPLED, logprobs=(-0.1,) * 100, versions=(1,) * 100, finish=FinishReason.STOP
        )
        yield Turn(
            session_id=session,
            index=index,
            segment=0,
            arm="champion",
            prompt_ids=prompt,
            completion=completion,
            started_at=at + index,
            latency_s=1.0,
        )
        prompt += SAMPLED


def rescored(folder: Path, count: int) -> dict[str, Any]:
    """Score sessions at their end, again after a year, and the first of them anew from all of their tokens.

    In between every window has ended, so that every reward changes.
    """
    store = Store.open(folder / "rescore.db")
    sessions = list(sessions_with_signals(store, count))
    first, _ = _timed(store, sessions, sessions[-1].started_at + 60.0)
    again, found = _timed(store, sessions, AFTER_A_YEAR)
    some = [session.id for session in sessions[:REPLAYED]]
    turns, signals = store.turns_of(some), store.signals_of(some)
    different = sum(
        canonical(LIVE.score(id_, turns[id_], signals[id_], as_of=AFTER_A_YEAR))
        != canonical(store.rewards(id_)[-1])
        for id_ in some
    )
    store.close()
    return {
        "signals": count,
        "sessions": found.sessions,
        "changed": found.changed,
        "first_cpu_s": first,
        "cpu_s": again,
        "replayed": len(some),
        "different": different,
    }


def _timed(store: Store, sessions: Sequence[Session], as_of: float) -> tuple[float, Rescored]:
    started = time.process_time()
    found = rescore(store, LIVE, sessions, as_of=as_of)
    return time.process_time() - started, found


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--signals", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        ours, theirs = (quantile(each(folder, options.events)) for each in (ingest, peer))
        figures = {
            "events_a_second": ours.value,
            "events_a_second_low": ours.low,
            "peer_events_a_second": theirs.value,
            "killed": killed(folder, options.kills),
            "rescore": rescored(folder, options.signals),
        }
    figures["rescore_cpu_s"] = figures["rescore"]["cpu_s"]
    table(
        ["", "a second of CPU time"],
        [["events into the store", ours.text(0)], ["sqlite3 alone", theirs.text(0)]],
    )
    print(f"killed: {figures['killed']}; scored again: {figures['rescore']}")
    run.finish(figures, as_json=options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write_until_killed(sys.argv[2])
    else:
        with Run("ingest") as opened:
            main(opened)
