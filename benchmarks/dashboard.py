"""The pages over a large record: the time and the CPU time that each takes on the server, and the memory.

    python -m benchmarks.dashboard [--sessions 100000] [--turns 10] [--pairs 12] [--json]

The record is made by SQL from the made-up one of `fuzz/`: every session has copies of the same turns, so that
only the sizes of tables and indexes matter. Each page is read and rendered `--times` times in this process;
its figure is the median. There is no peer: no other program shows this record. Then a gateway records into
the same store, with and without somebody who reads the pages (`dashboard_gateway.py`).
"""

import argparse
import asyncio
import json
import resource
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from fuzz.seen_history import EXPERIMENT, grow
from fuzz.seen_session import teach_tokenizer
from fuzz.seen_store import NOW, STORY, fill

from benchmarks.dashboard_gateway import BesideFigures, beside
from ostinato.dashboard.access import OPERATOR
from ostinato.dashboard.html import address, environment
from ostinato.dashboard.pages import PAGES, Page
from ostinato.dashboard.reading.base import RecordSource
from ostinato.dashboard.text.lexicon import Lexicon
from ostinato.loop.dashboard.link import LoopLink
from ostinato.store import Store

ASKED = {
    "/session": {"id": STORY},
    "/version": {"version": "7"},
    "/experiment": {"id": EXPERIMENT},
    "/group": {"id": "group/practice"},
}
FRAME = {"pages": (), "here": "", "under": "", "json": "", "live": None, "scripts": True, "token": "t"}
NUMBERS = "WITH RECURSIVE {0}(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM {0} WHERE n + 1 < {1})"


def enlarge(store: Store, sessions: int, turns: int) -> None:
    """Add sessions with so many turns each, their states and a reward, as copies of one practice session."""
    own = "'big/' || numbers.n"
    each = f"SELECT n FROM ({NUMBERS.format('within', turns)} SELECT n FROM within)"
    copies = (
        ("sessions", "id = 'practice-0'", "numbers", {"id": own, "started_at": f"{NOW} - 9e6 + numbers.n"}),
        (
            "turns",
            "id = 'practice-0/0'",
            f"numbers, ({each}) AS place",
            {"id": f"{own} || '/' || place.n", "session_id": own, "number": "place.n"},
        ),
        ("rewards", '"order" = 3', "numbers", {"order": "NULL", "session_id": own}),
    )
    with store.database.write() as connection:
        for table, where, sources, changed in copies:
            names = [row[1] for row in connection.exec_driver_sql(f"PRAGMA table_info({table})")]
            columns = ", ".join(f'"{name}"' for name in names)
            values = ", ".join(changed.get(name, f'{table}."{name}"') for name in names)
            connection.exec_driver_sql(
                f"{NUMBERS.format('numbers', sessions)} INSERT INTO {table} ({columns}) "
                f"SELECT {values} FROM {table}, {sources} WHERE {table}.{where}"
            )
        connection.exec_driver_sql(
            "INSERT INTO states SELECT id, 'trained', NULL FROM turns WHERE id LIKE 'big/%'"
        )


def make(folder: Path, sessions: int, turns: int) -> None:
    """Write the record into a folder: in a process of its own, so that its memory is not counted."""
    store = Store.open(folder / "store.db")
    renderer = teach_tokenizer(folder / "start")
    fill(store, renderer)
    grow(store, renderer)
    enlarge(store, sessions, turns)
    store.close()


def measure(reading: RecordSource, page: Page, times: int) -> tuple[float, float]:
    """Return the median milliseconds, on the clock and of the CPU, to read and render one page."""
    template = environment().get_template(page.template)
    taken = []
    for _ in range(times):
        began, busy = time.perf_counter(), time.process_time()
        answer = page.read(reading, OPERATOR, ASKED.get(page.address, {}))
        template.render(answer, viewer=OPERATOR, **FRAME)
        taken.append((1000 * (time.perf_counter() - began), 1000 * (time.process_time() - busy)))
    return median(one for one, _ in taken), median(one for _, one in taken)


def main() -> None:
    """Print the table, and with `--json` one JSON object on the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=10, help="the turns of each session")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=12, help="windows beside the gateway; 0 leaves them out")
    parser.add_argument("--seconds", type=float, default=8.0, help="the length of a window")
    parser.add_argument("--rate", type=float, default=40.0, help="the gateway's requests a second")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        maker = get_context("spawn").Process(
            target=make, args=(Path(folder), options.sessions, options.turns)
        )
        maker.start()
        maker.join()
        store = Store.open(Path(folder) / "store.db")
        reading = RecordSource(
            store=store,
            lexicon=Lexicon.load(Path(folder) / "start"),
            clock=lambda: NOW,
            directory=Path(folder),
            loop=LoopLink(),
        )
        rows = {page.address: measure(reading, page, options.times) for page in PAGES}
        store.close()
        memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        near = _beside(Path(folder), options) if options.pairs else None
    print(f"{options.sessions} sessions of {options.turns} turns")
    print(f"{'page':<14}{'ms':>9}{'CPU ms':>9}")
    for name, (wall, cpu) in rows.items():
        print(f"{name:<14}{wall:>9.0f}{cpu:>9.0f}")
    if near:
        print(f"gateway p99 with a reader / alone: {near.ratio.text(2)}, {near.pages} pages read")
    slowest = max(rows, key=lambda name: rows[name][0])
    if options.json:
        result = {
            "sessions": options.sessions,
            "turns": options.sessions * options.turns,
            "first_page_ms": round(rows["/"][0], 1),
            "first_page_cpu_ms": round(rows["/"][1], 1),
            "slowest_page": slowest,
            "slowest_page_ms": round(rows[slowest][0], 1),
            "slowest_page_cpu_ms": round(max(cpu for _, cpu in rows.values()), 1),
            "memory_mb": memory_mb,
            **(_told(near, options) if near else {}),
        }
        print(json.dumps(result))


def _beside(folder: Path, options: argparse.Namespace) -> BesideFigures:
    addresses = [address(page.address, **ASKED.get(page.address, {})) for page in PAGES]
    return asyncio.run(
        beside(folder, addresses, pairs=options.pairs, seconds=options.seconds, rate=options.rate)
    )


def _told(near: BesideFigures, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "gateway_p99_ratio": round(near.ratio.value, 3),
        "gateway_p99_ratio_low": round(near.ratio.low, 3),
        "gateway_p99_ratio_high": round(near.ratio.high, 3),
        "gateway_p99_alone_ms": round(near.p99_alone_ms.value, 2),
        "gateway_p99_beside_ms": round(near.p99_beside_ms.value, 2),
        "gateway_requests_a_second": options.rate,
        "pairs": near.ratio.n,
        "pages_read": near.pages,
        "dashboard_process_mb": round(near.dashboard_mb),
    }


if __name__ == "__main__":
    main()
