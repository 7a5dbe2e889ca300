"""Turns a second through `Store.record` of several processes at once, on PostgreSQL and on SQLite.

    python -m benchmarks.store [--json] [--turns 4000] [--batch 16] [--writers 4] [--samplers 16]

Each writer records sessions of 16 turns, `--batch` turns in a transaction, as a gateway's recorder does under
load; a first prompt has 300 tokens, and each later turn reads 30 and samples 20 more. Both databases flush as
their backends promise, on the same disk. Then writers are killed with -9, and so is a session of the server,
while they write: what was acknowledged and is not there counts as lost. Last, samplers reserve, offer and
claim on one ledger; an error of serialisation that reaches one ends it and is counted.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from fuzz.postgres import PostgresServer, missing, name_of

from benchmarks.measure import Run, table
from ostinato.store import Ledger, Store
from ostinato.types import Completion, FinishReason, Group, Sample, Session, Source, Turn

DURABLE = {"fsync": "on", "full_page_writes": "on"}
OF_A_SESSION = 16


def turns_of(session: str) -> list[Turn]:
    """Return the turns of one session, each of which continues the one before."""
    made, context = list[Turn](), tuple(range(300))
    ids = tuple(range(20))
    about = {"segment": 0, "arm": "main", "started_at": 1.0, "latency_s": 0.1}
    completion = Completion(
        ids=ids, logprobs=(-0.5,) * len(ids), versions=(3,) * len(ids), finish=FinishReason.STOP
    )
    for index in range(OF_A_SESSION):
        made.append(
            Turn(session_id=session, index=index, prompt_ids=context, completion=completion, **about)  # type: ignore[arg-type]
        )
        context = (*context, *ids, *range(30))
    return made


def session_of(name: str) -> Session:
    return Session(
        id=name, source=Source.LIVE, user="ada", arm="main", task_id=None, harness="", started_at=1.0
    )


def write(place: str, name: str, turns: int, batch: int) -> None:
    """Record `turns` turns once the parent says so, and print how many are recorded after each batch."""
    store, made = Store.open(place), list[Turn]()
    sessions = [f"{name}-{number}" for number in range(-(-turns // OF_A_SESSION))]
    store.record((), sessions=[session_of(each) for each in sessions])
    for each in sessions:
        made += turns_of(each)
    print("ready", flush=True)
    sys.stdin.readline()
    for at in range(0, turns, batch):
        store.record(made[at : at + batch])
        print(min(turns, at + batch), flush=True)


def sample(place: str, name: str, prompts: int) -> None:
    """Reserve, record, offer and claim until no prompt is left, and print the number of claims."""
    store, claims = Store.open(place), 0
    ledger = Ledger(store)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(prompts):
        if not ledger.reserve(f"p{number}"):
            continue
        (turn, *_) = turns_of(f"s{number}")
        store.record([turn], sessions=[session_of(turn.session_id)])
        row = Sample(
            session_id=turn.session_id, turns=(0,), ids=(1, 2), mask=(False, True), logprobs=(0.0, -0.5),
            versions=(0, 3), temperatures=(1.0, 1.0), advantage=0.5,
        )  # fmt: skip
        ledger.offer(Group(id=f"g{number}", prompt=f"p{number}", samples=(row,), rewards=(1.0,)))
        claims += len(ledger.claim(10 + int(name), 1, 0))
    print(claims, flush=True)


def start(role: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.store", "--as", role, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def released(processes: list[subprocess.Popen[str]]) -> None:
    for each in processes:
        assert each.stdout and each.stdout.readline() == "ready\n", each.communicate()[1]
    for each in processes:
        assert each.stdin
        each.stdin.write("go\n")
        each.stdin.flush()


def turns_a_second(place: str, options: argparse.Namespace) -> float:
    Store.open(place).close()
    writers = [start("writer", place, f"w{i}", options.turns, options.batch) for i in range(options.writers)]
    released(writers)
    began = time.perf_counter()
    for each in writers:
        _, errors = each.communicate()
        if each.returncode:
            raise RuntimeError(errors)
    return options.writers * options.turns / (time.perf_counter() - began)


def acknowledged(writer: subprocess.Popen[str], least: int) -> Iterator[int]:
    assert writer.stdout
    for _ in range(least):
        if line := writer.stdout.readline():
            yield int(line)


def lost(place: str, server: PostgresServer | None, options: argparse.Namespace) -> int:
    """Kill a session of the server, then each writer, and count what was acknowledged and is gone."""
    Store.open(place).close()
    writers = [start("writer", place, f"w{i}", 8_000, options.batch) for i in range(options.writers)]
    released(writers)
    written = [max(acknowledged(each, 20)) for each in writers]
    if server is not None:
        os.kill(server.backends(name_of(place))[0], signal.SIGKILL)
        written = [max(acknowledged(each, 20)) for each in writers]
    for i, each in enumerate(writers):
        each.kill()
        assert each.stdout
        written[i] = max([written[i], *map(int, each.stdout.read().split())])
        each.communicate()
    store, missing_turns = Store.open(place), 0
    for i, count in enumerate(written):
        sessions = [f"w{i}-{number}" for number in range(-(-count // OF_A_SESSION))]
        found = store.turns_of(sessions)
        expected = [turn for name in sessions for turn in turns_of(name)][:count]
        kept = {turn.id: turn for some in found.values() for turn in some}
        missing_turns += sum(kept.get(turn.id) != turn for turn in expected)
    store.close()
    return missing_turns


def claims(place: str, options: argparse.Namespace) -> tuple[int, int, int]:
    """Return the claims, the samplers that an error reached, and the prompts that were trained twice."""
    Store.open(place).close()
    samplers = [start("sampler", place, i, options.prompts) for i in range(options.samplers)]
    released(samplers)
    ended = [each.communicate() for each in samplers]
    claimed = sum(int(said or 0) for said, _ in ended)
    errors = sum(each.returncode != 0 for each in samplers)
    return claimed, errors, Ledger(Store.open(place)).trained_twice()


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=4_000, help="turns of each writer")
    parser.add_argument("--batch", type=int, default=16, help="turns in one transaction")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--samplers", type=int, default=16)
    parser.add_argument("--prompts", type=int, default=200, help="prompts that the samplers share")
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of each database, of which the best counts"
    )
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    if reason := missing():
        parser.error(reason)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(PostgresServer(DURABLE))
        files = (str(folder / f"{number}.db") for number in range(100))
        speeds: dict[str, list[float]] = {"postgres": [], "sqlite": []}
        for _ in range(options.repeats):
            speeds["postgres"].append(turns_a_second(server.new(), options))
            speeds["sqlite"].append(turns_a_second(next(files), options))
        gone = lost(server.new(), server, options) + lost(next(files), None, options)
        claimed, errors, twice = claims(server.new(), options)
    rows = [[name, *(f"{each:,.0f}" for each in found)] for name, found in speeds.items()]
    table(["database", *(f"run {i + 1}, turns/s" for i in range(options.repeats))], rows)
    figures = {f"turns_per_s_{name}": max(found) for name, found in speeds.items()}
    counts = {"lost": gone, "serialisation_errors": errors, "claims": claimed, "trained_twice": twice}
    run.finish(figures | counts, as_json=options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as"]:
        role, place_, *rest = sys.argv[2:]
        if role == "writer":
            write(place_, rest[0], int(rest[1]), int(rest[2]))
        else:
            sample(place_, rest[0], int(rest[1]))
    else:
        with Run("store", "sqlalchemy", "psycopg") as run_:
            main(run_)
