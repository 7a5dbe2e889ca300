"""The bytes that a turn takes in the store, beside those of a store that keeps every prompt whole.

    python -m benchmarks.turn_bytes [--json] [--first 1500] [--added 120] [--sampled 80]

One session of each length is recorded turn by turn: `--first` tokens at first, then `--added` tokens read and
`--sampled` tokens sampled in each turn. The size is that of the token columns, and of the whole file after
`VACUUM`; the peer is the same turns with whole prompts, four bytes a token.
"""

import argparse
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.measure import Run, table
from ostinato.store import Store
from ostinato.types import Completion, FinishReason, Session, Source, Turn

LENGTHS = (10, 50, 200)
TOKENS = "SELECT sum(length(prompt_ids) + length(ids) + length(logprobs) + length(versions)) FROM turns"
SESSION = Session(
    id="s", source=Source.LIVE, user="ada", arm="main", task_id=None, harness="", started_at=1.0
)


def conversation(turns: int, first: int, added: int, sampled: int) -> Iterator[Turn]:
    context: tuple[int, ...] = ()
    for index in range(turns):
        count = added if index else first
        prompt = context + tuple((index * 7 + i) % 49_000 for i in range(count))
        completion = Completion(
            ids=tuple(range(sampled)),
            logprobs=(-0.5,) * sampled,
            versions=(3,) * sampled,
            finish=FinishReason.STOP,
        )
        yield Turn(
            session_id="s",
            index=index,
            segment=0,
            arm="main",
            prompt_ids=prompt,
            completion=completion,
            started_at=1.0,
            latency_s=0.1,
        )
        context = prompt + completion.ids


def sizes(turns: int, options: argparse.Namespace) -> dict[str, float]:
    """Return the bytes of a turn in a session of so many."""
    made = list(conversation(turns, options.first, options.added, options.sampled))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "record.db"
        with closing(Store.open(path)) as store:
            store.start_session(SESSION)
            for turn in made:
                store.record([turn])
            assert store.turns("s") == made
        with closing(sqlite3.connect(path)) as connection:
            (tokens,) = connection.execute(TOKENS).fetchone()
            connection.execute("VACUUM")
        whole = tokens + sum(4 * len(turn.prompt_ids) for turn in made) - _stored_prompts(path)
        return {"tokens": tokens / turns, "whole": whole / turns, "file": path.stat().st_size / turns}


def _stored_prompts(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (stored,) = connection.execute("SELECT sum(length(prompt_ids)) FROM turns").fetchone()
    return int(stored)


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=1_500, help="tokens of the first prompt")
    parser.add_argument("--added", type=int, default=120, help="tokens that each later prompt adds")
    parser.add_argument("--sampled", type=int, default=80, help="tokens sampled in each turn")
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    found = {turns: sizes(turns, options) for turns in LENGTHS}
    rows = [[str(turns), *(f"{each[name]:,.0f}" for name in each)] for turns, each in found.items()]
    table(["turns", "bytes of tokens a turn", "with whole prompts", "of the file"], rows)
    figures = {f"{name}_{turns}": value for turns, each in found.items() for name, value in each.items()}
    run.finish(figures, as_json=options.json)


if __name__ == "__main__":
    with Run("turn_bytes", "sqlalchemy") as run_:
        main(run_)
