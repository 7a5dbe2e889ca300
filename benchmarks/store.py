"""The record under several processes at once: PostgreSQL beside SQLite, in the same run.

    python -m benchmarks.store [--json] [--rounds 3] [--seconds 3] [--writers 4] [--batch 16] [--kills 6]
                               [--samplers 16] [--prompts 320]

1. Recording. `--writers` processes record turns, each `--batch` of as many sessions a call, as a gateway does
   under load, for `--seconds`; a session has eight turns of 120 tokens read and 80 sampled. The rounds
   alternate between the two databases. PostgreSQL flushes every commit (`fsync = on`).
2. Kills. The same writers, of which one after another is killed with SIGKILL and replaced; on PostgreSQL as
   many backends are killed too, at which the server ends all others and recovers. `lost` counts turns whose
   call had returned and that are not there, `failed` calls that raised an error.
3. The ledger. `--samplers` processes reserve the same prompts, offer a group of each one that they were
   granted, and claim groups: `errors` counts exceptions, `claimed_twice` groups that two of them got.
"""

import argparse
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from typing import Any

from fuzz.postgres import PostgresServer, missing, name_of
from sqlalchemy import text

from benchmarks.measure import Cpu, Run, quantile, ratios, table
from benchmarks.turn_bytes import conversation
from ostinato.store import Ledger, Store
from ostinato.types import Group, Sample, Session, Source, Turn

FORK = multiprocessing.get_context("fork")
TURNS = 8
"""Turns of one session."""
FIRST, ADDED, SAMPLED = 400, 120, 80
"""Tokens of the first prompt, and read and sampled in each turn."""
KINDS = ("postgres", "sqlite")
PAUSE_S = 0.4
"""Seconds between two kills."""
Work = Callable[[str, Connection], None]


def session(id: str) -> Session:
    return Session(id=id, source=Source.PRACTICE, user="u", arm="a", task_id=None, harness="", started_at=1.0)


def call_of(writer: str, number: int, batch: int, turns: Sequence[Turn]) -> tuple[list[Session], list[Turn]]:
    """Return what a writer records in its call of that number: one turn of each of `batch` sessions."""
    ids = [f"{writer}-{number // TURNS}-{each}" for each in range(batch)]
    turn = turns[number % TURNS]
    began = [session(id) for id in ids] if number % TURNS == 0 else []
    return began, [replace(turn, session_id=id) for id in ids]


def write(writer: str, seconds: float, batch: int, place: str, line: Connection) -> None:
    """Record until the time is over, and say after each call that it returned."""
    turns = list(conversation(TURNS, FIRST, ADDED, SAMPLED))
    with closing(Store.open(place)) as store:
        line.send("ready")
        line.recv()
        began, number = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            sessions, new = call_of(writer, number, batch, turns)
            store.record(new, sessions=sessions)
            number += 1
            line.send(number)
    line.send("done")


def race(owner: int, prompts: int, place: str, line: Connection) -> None:
    """Reserve, offer and claim beside the other samplers; send the granted prompts and the claimed groups."""
    granted, claimed = list[str](), list[str]()
    with closing(Store.open(place)) as store:
        ledger, (turn,) = Ledger(store), conversation(1, FIRST, ADDED, SAMPLED)
        order = [f"p{number}" for number in range(prompts)]
        random.Random(owner).shuffle(order)
        line.send("ready")
        line.recv()
        for prompt in order:
            if ledger.reserve(prompt):
                granted.append(prompt)
                mine = replace(turn, session_id=prompt)
                store.record([mine], sessions=[session(prompt)])
                ledger.offer(group_of(prompt, mine))
                claimed += [group.id for group in ledger.claim(1, 1, 0)]
    line.send((granted, claimed))


def group_of(prompt: str, turn: Turn) -> Group:
    completion = turn.completion
    sample = Sample(
        session_id=prompt,
        turns=(0,),
        ids=(*turn.prompt_ids, *completion.ids),
        mask=(False,) * len(turn.prompt_ids) + (True,) * len(completion.ids),
        logprobs=(0.0,) * len(turn.prompt_ids) + completion.logprobs,
        versions=(-1,) * len(turn.prompt_ids) + completion.versions,
        temperatures=(1.0,) * (len(turn.prompt_ids) + len(completion.ids)),
        advantage=1.0,
    )
    return Group(id=f"g/{prompt}", prompt=prompt, samples=(sample,), rewards=(1.0,))


@dataclass(slots=True)
class Worker:
    """A forked process at work, and the last thing that it said."""

    name: str
    process: Any
    line: Connection
    calls: int = 0
    ended: Any = None

    @property
    def failed(self) -> bool:
        return self.ended is None and self.process.exitcode not in (None, -signal.SIGKILL)

    def hear(self) -> None:
        """Read what it said, to the last word of a process that ended."""
        try:
            while self.line.poll():
                said = self.line.recv()
                if isinstance(said, int):
                    self.calls = said
                else:
                    self.ended = said
        except EOFError:
            pass


def start(name: str, work: Work, place: str) -> Worker:
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=work, args=(place, theirs), daemon=True)
    process.start()
    theirs.close()
    assert ours.recv() == "ready"
    return Worker(name=name, process=process, line=ours)


def run(workers: Sequence[Worker]) -> float:
    """Let them go, wait for their ends, and return the seconds."""
    began = time.monotonic()
    for worker in workers:
        worker.line.send("go")
    while any(worker.process.is_alive() for worker in workers):
        for worker in workers:
            worker.hear()
        time.sleep(0.01)
    for worker in workers:
        worker.hear()
    return time.monotonic() - began


def recording(place: str, options: argparse.Namespace, cpu: Cpu, label: str) -> tuple[float, float]:
    """Return turns a second, and microseconds of CPU a turn, all processes and the server together."""
    names = [f"{label}w{number}" for number in range(options.writers)]
    workers = [start(n, partial(write, n, options.seconds, options.batch), place) for n in names]
    spent = cpu.seconds()
    run(workers)
    turns = sum(worker.calls for worker in workers) * options.batch
    assert not any(worker.failed for worker in workers)
    return turns / options.seconds, 1e6 * (cpu.seconds() - spent) / max(1, turns)


def killed(place: str, options: argparse.Namespace, server: PostgresServer | None) -> dict[str, int]:
    """Kill writers, and backends where there is a server, while the writers record."""
    rng, began = random.Random(options.kills), 1_000_000.0
    workers, dead, kills = list[Worker](), list[Worker](), 0

    def another() -> Worker:
        name = f"k{len(workers) + len(dead)}"
        worker = start(name, partial(write, name, began, options.batch), place)
        worker.line.send("go")
        return worker

    for _ in range(options.writers):
        workers.append(another())
    for _ in range(options.kills):
        time.sleep(PAUSE_S)
        victim = workers.pop(rng.randrange(len(workers)))
        os.kill(victim.process.pid, signal.SIGKILL)
        dead.append(victim)
        workers.append(another())
        kills += 1
        if server is not None:
            time.sleep(PAUSE_S)
            os.kill(rng.choice(server.backends(name_of(place))), signal.SIGKILL)
            kills += 1
    time.sleep(PAUSE_S)
    failed = sum(not worker.process.is_alive() for worker in workers)
    for worker in workers:
        os.kill(worker.process.pid, signal.SIGKILL)
    for worker in (*dead, *workers):
        worker.process.join()
        worker.hear()
    return {"kills": kills, "failed": failed, **lost(place, (*dead, *workers), options.batch)}


def lost(place: str, workers: Sequence[Worker], batch: int) -> dict[str, int]:
    turns = list(conversation(TURNS, FIRST, ADDED, SAMPLED))
    with closing(Store.open(place)) as store, store.database.read() as connection:
        there = {(row[0], row[1]) for row in connection.execute(text("SELECT session_id, number FROM turns"))}
    told = {
        (turn.session_id, turn.index)
        for worker in workers
        for number in range(worker.calls)
        for turn in call_of(worker.name, number, batch, turns)[1]
    }
    return {"acknowledged": len(told), "lost": len(told - there)}


def ledger(place: str, options: argparse.Namespace) -> dict[str, Any]:
    workers = [start(f"s{n}", partial(race, n, options.prompts), place) for n in range(options.samplers)]
    seconds = run(workers)
    whole = [worker.ended for worker in workers if isinstance(worker.ended, tuple)]
    granted = [prompt for each in whole for prompt in each[0]]
    claimed = [group for each in whole for group in each[1]]
    with closing(Store.open(place)) as store:
        twice = Ledger(store).trained_twice()
    return {
        "errors": len(workers) - len(whole),
        "granted": len(granted),
        "granted_twice": len(granted) - len(set(granted)),
        "claimed": len(claimed),
        "claimed_twice": len(claimed) - len(set(claimed)),
        "trained_twice": twice,
        "transactions_per_s": (options.samplers * options.prompts + 3 * len(granted)) / seconds,
    }


@contextmanager
def places() -> Iterator[tuple[PostgresServer | None, Callable[[str], str]]]:
    """Yield a server, where there is one, and what makes an empty database of a kind."""
    with TemporaryDirectory() as folder:
        numbers = iter(range(10_000))

        def new(kind: str) -> str:
            return server.new() if server and kind == "postgres" else f"{folder}/record-{next(numbers)}.db"

        server = None if missing() else PostgresServer({"fsync": "on", "full_page_writes": "on"})
        if server is not None:
            server.start()
        try:
            yield server, new
        finally:
            if server is not None:
                server.close()


def measured(options: argparse.Namespace, cpu: Cpu) -> dict[str, Any]:
    with places() as (server, new):
        kinds = KINDS if server is not None else KINDS[1:]
        rates: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for number in range(options.rounds):
            for kind in kinds if number % 2 == 0 else kinds[::-1]:
                rates[kind].append(recording(new(kind), options, cpu, f"r{number}"))
        kills = {kind: killed(new(kind), options, server if kind == "postgres" else None) for kind in kinds}
        return {
            "rates": rates,
            "kills": kills,
            "ledger": {kind: ledger(new(kind), options) for kind in kinds},
        }


def figures_of(found: dict[str, Any]) -> dict[str, Any]:
    figures: dict[str, Any] = {"kills": found["kills"], "ledger": found["ledger"]}
    for kind, rows in found["rates"].items():
        turns = quantile([row[0] for row in rows])
        figures[f"turns_per_s_{kind}"] = [turns.value, turns.low, turns.high, turns.n]
        figures[f"cpu_us_per_turn_{kind}"] = quantile([row[1] for row in rows]).value
    if len(found["rates"]) == 2:
        both = ratios(*([row[0] for row in found["rates"][kind]] for kind in KINDS))
        figures["postgres_to_sqlite"] = [both.value, both.low, both.high, both.n]
    return figures


def read_options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__)
    parser.add_argument("--json", action="store_true")
    for name, default in (("rounds", 3), ("writers", 4), ("batch", 16), ("kills", 6)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--samplers", type=int, default=16)
    parser.add_argument("--prompts", type=int, default=320)
    return parser.parse_args(words)


def main() -> None:
    options = read_options()
    with Run("store", "sqlalchemy") as whole:
        figures = figures_of(measured(options, whole.cpu))
        kinds = list(figures["kills"])
        names = ("turns_per_s", "cpu_us_per_turn")
        rows = [[name, *(text_of(figures[f"{name}_{kind}"]) for kind in kinds)] for name in names]
        for part in ("kills", "ledger"):
            rows += [
                [f"{part}: {name}", *(text_of(figures[part][kind][name]) for kind in kinds)]
                for name in figures[part][kinds[0]]
            ]
        table(["", *kinds], rows)
        whole.finish({**figures, "options": vars(options)}, as_json=options.json)


def text_of(value: Any) -> str:
    """Return a count, a figure or a figure with its interval as people read it."""
    if isinstance(value, list):
        return f"{value[0]:,.0f} [{value[1]:,.0f}, {value[2]:,.0f}]"
    return f"{value:,.0f}"


if __name__ == "__main__":
    main()
