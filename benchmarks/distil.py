"""Collecting and distilling the live sessions of a long record: memory, and the cost of a session.

A script writes a record of `--sessions` ended live sessions, each of one turn of 100 tokens and of one or two
signals, of a user for every hundred, all of whom agreed. Then another process collects them as a cycle does:
every session is scored, compared with others of its stratum, which is read from its prompt, and offered.
Reported by size are the CPU microseconds a session, and how far the peak of the resident memory lies above
that of a process that has collected 1,000.

`python -m benchmarks.distil --json`
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.measure import table
from ostinato.loop.people import strata_of_people
from ostinato.model.tokenizer import Tokenizer
from ostinato.rewards.live.definition import LIVE
from ostinato.rollout.collect import Collector
from ostinato.store import Store
from ostinato.types import (
    Completion,
    Ending,
    FinishReason,
    Session,
    Signal,
    SignalKind,
    Source,
    Turn,
)

AT_ONCE = 2_000
PROMPT, SAMPLED = 60, 40
ASKED = [
    f"{verb} {name}.{ending}, please: {' '.join([name] * 40)}"
    for verb in ("fix", "add a test to", "explain", "rename the class in", "write the docs of")
    for name, ending in (("cart", "py"), ("lexer", "rs"), ("pages", "ts"), ("queue", "go"))
]
TOKENIZER = Tokenizer.train(["<|im_start|>user\n" + asked + "<|im_end|>\n" for asked in ASKED], 400)


def _prompt(asked: str) -> tuple[int, ...]:
    """Return a prompt of `PROMPT` tokens: the words, cut to length, in the form that the gateway writes."""
    head, tail = (
        TOKENIZER.encode(each) for each in ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")
    )
    return (*head, *TOKENIZER.encode(asked)[: PROMPT - len(head) - len(tail)], *tail)


PROMPTS = [_prompt(asked) for asked in ASKED]
A_USER = 100
START = 1.7e9
FIRST = 1_000
KINDS = (SignalKind.EDIT_KEPT, SignalKind.EDIT_REVERTED, SignalKind.COMPLAINT)


def write_record(path: Path, sessions: int) -> None:
    """Write the record; all windows and waits are over a month after START."""
    rng = random.Random(sessions)
    with closing(Store.open(path)) as store:
        for user in range(-(-sessions // A_USER)):
            store.accounts.set_consent(user=f"u{user}", granted=True, by=f"u{user}")
        for start in range(0, sessions, AT_ONCE):
            rows = [_session(number, rng) for number in range(start, min(sessions, start + AT_ONCE))]
            store.record(
                [turn for _, turn, _ in rows],
                [signal for *_, signals in rows for signal in signals],
                [session for session, *_ in rows],
            )


def _session(number: int, rng: random.Random) -> tuple[Session, Turn, list[Signal]]:
    id, at = f"{rng.getrandbits(128):032x}", START + number
    session = Session(
        id=id, source=Source.LIVE, user=f"u{number // A_USER}", arm="main", task_id=None, harness="9f",
        started_at=at, ending=Ending.FINISHED, consent=True,
    )  # fmt: skip
    completion = Completion(
        ids=tuple(rng.randrange(TOKENIZER.vocab_size) for _ in range(SAMPLED)),
        logprobs=(-0.5,) * SAMPLED,
        versions=(1,) * SAMPLED,
        finish=FinishReason.STOP,
    )
    turn = Turn(
        session_id=id, index=0, segment=0, arm="main", completion=completion, started_at=at, latency_s=1.0,
        prompt_ids=PROMPTS[rng.randrange(len(PROMPTS))],
    )  # fmt: skip
    kinds = rng.sample(KINDS, 1 + (number % 4 == 0))
    signals = [
        Signal(session_id=id, kind=kind, value=1.0, observed_at=at + 60 + n, id=f"{id}/{n}")
        for n, kind in enumerate(kinds)
    ]
    return session, turn, signals


def collect(path: Path) -> dict[str, float]:
    """Collect everything in this process, and return what it took."""
    began = time.process_time()
    with closing(Store.open(path)) as store:
        strata_of = partial(strata_of_people, store, TOKENIZER)
        harvest = Collector(store, LIVE).harvest(["main"], strata_of, as_of=START + 40 * 86_400 + 1e7)
    return {
        "offered": harvest.offered,
        "cpu_s": time.process_time() - began,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measured(sessions: int) -> dict[str, float]:
    """Write a record of that size, and let a fresh process collect it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        began = time.process_time()
        write_record(path, sessions)
        written = time.process_time() - began
        command = [sys.executable, "-m", "benchmarks.distil", "--collect", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    assert found["offered"] == sessions, found
    return found | {"sessions": sessions, "write_cpu_s": written}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--collect", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    options = parser.parse_args(arguments)
    if options.collect is not None:
        print(json.dumps(collect(options.collect)))
        return 0
    base, rows = measured(FIRST)["peak_mib"], []
    for sessions in options.sessions:
        row = measured(sessions)
        row["us_a_session"] = 1e6 * row["cpu_s"] / row["sessions"]
        row["grown_mib"] = row["peak_mib"] - base
        print(json.dumps(row), file=sys.stderr, flush=True)  # a long record takes long
        rows.append(row)
    names = ("sessions", "us_a_session", "grown_mib", "cpu_s", "write_cpu_s")
    table(names, [[f"{row[name]:,.0f}" for name in names] for row in rows])
    costs = [row["us_a_session"] for row in rows]
    figures = {
        "rows": rows,
        "ratio": max(costs) / costs[0],
        "tokens": max(options.sessions) * (PROMPT + SAMPLED),
    }
    if options.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
