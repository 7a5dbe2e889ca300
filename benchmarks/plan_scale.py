"""The cost of one session to the ledger and the chain of weights, by how many are in flight.

    python -m benchmarks.plan_scale [--json] [--sizes 100 1000 10000 100000] [--engines 100 1000 10000]
                                    [--plot docs/plan-scale.svg]

The real classes on one core: `Slots` and `Ledger` on a SQLite file, and `Subscriber`s and
`Mirror`s of a published chain. So many sessions are put in flight first; then the marginal
cost of more is measured, in CPU seconds of this process. Engines and regions do not run: each is a reader
with weights of its own, or a bucket.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from benchmarks.measure import Run
from ostinato.store import Ledger, Objects, Store
from ostinato.store.ledger.slot_rows import Slot, SlotState
from ostinato.store.ledger.slots import Slots
from ostinato.sync import Publisher, Subscriber
from ostinato.sync.mirror import Mirror
from ostinato.types import Group, Sample

SIZES, ENGINES, REGIONS = (100, 1_000, 10_000, 100_000), (100, 1_000, 10_000), (1, 10, 100)
GROUP, PROBES, BATCH = 8, 50, 10
"""Sessions of a group; groups that are measured; groups of a step."""


def ledger(sessions: int, folder: Path) -> float:
    """Return CPU seconds a session from planned to claimed, with so many running."""
    store = Store.open(folder / f"{sessions}.db")
    slots, book = Slots(store), Ledger(store)
    for number in range(sessions // GROUP):
        run(slots, f"there/{number}")
    start = time.process_time()
    for number in range(PROBES):
        probe(slots, book, f"probe/{number}")
        if number % BATCH == BATCH - 1:
            assert len(book.claim(number // BATCH + 1, BATCH, 0)) == BATCH
    return (time.process_time() - start) / (PROBES * GROUP)


def run(slots: Slots, prompt: str) -> list[Slot]:
    planned = slots.plan(prompt, [f"{prompt}/{i}" for i in range(GROUP)])
    return slots.move(planned, [replace(slot, state=SlotState.RUNNING) for slot in planned])


def probe(slots: Slots, book: Ledger, prompt: str) -> None:
    """One group from its plan to its offer, each session's transitions written by themselves."""
    for slot in run(slots, prompt):
        (ended,) = slots.move([slot], [replace(slot, state=SlotState.FINISHED, kept=b"{}", turns=4)])
        slots.move([ended], [replace(ended, state=SlotState.SCORED, kept=None)])
    ids = tuple(range(140))
    mask = tuple(i % 3 == 0 for i in ids)
    flat = tuple(0.0 for _ in ids)
    rows = [
        Sample(
            session_id=f"{prompt}/{i}",
            turns=(0,),
            ids=ids,
            mask=mask,
            logprobs=flat,
            versions=tuple(0 for _ in ids),
            temperatures=tuple(1.0 for _ in ids),
            advantage=0.5 - i % 2,
        )
        for i in range(GROUP)
    ]
    assert book.offer(Group(id=f"g/{prompt}", prompt=prompt, samples=tuple(rows), rewards=(1.0,) * GROUP))


def chain(engines: int, folder: Path) -> float:
    """Return CPU seconds for one engine to notice, fetch and verify one version, of so many engines."""
    objects = Objects.open(str(folder / f"chain-{engines}"))
    publisher, weights = Publisher(objects), torch.zeros(64, 64)
    publisher.anchor(0, {"w": weights})
    readers = [Subscriber(objects, leases=False) for _ in range(engines)]
    for reader in readers:
        reader.fetch(0)
    publisher.delta(1, {"w": weights + torch.eye(64)})
    start = time.process_time()
    for reader in readers:
        head = reader.head()
        assert head == 1
        reader.fetch(head)
    return (time.process_time() - start) / engines


def mirrors(regions: int, folder: Path) -> float:
    """Return CPU seconds for one region to copy a version into a bucket of its own, of so many regions."""
    source = Objects.open(str(folder / f"from-{regions}"))
    publisher, weights = Publisher(source), torch.zeros(64, 64)
    publisher.anchor(0, {"w": weights})
    targets = [Objects.open(str(folder / f"to-{regions}-{i}")) for i in range(regions)]
    copies = [Mirror(source, target) for target in targets]
    for copy in copies:
        copy.step()
    publisher.delta(1, {"w": weights + torch.eye(64)})
    start = time.process_time()
    for copy in copies:
        copy.step()
    spent = (time.process_time() - start) / regions
    assert all(Subscriber(target, leases=False).head() == 1 for target in targets)
    return spent


def measured(part: Callable[[int, Path], float], sizes: Sequence[int], repeats: int = 3) -> dict[int, float]:
    """Return the least of some runs for each small size; the large ones are run once."""
    found: dict[int, float] = {}
    for size in sizes:
        costs = []
        for _ in range(repeats if size <= 1_000 else 1):
            with tempfile.TemporaryDirectory() as folder:
                costs.append(part(size, Path(folder)))
        found[size] = min(costs)
    return found


def growth(costs: dict[int, float]) -> float:
    """Return the largest cost over the least."""
    return max(costs.values()) / min(costs.values())


def draw(found: dict[str, dict[int, float]], path: Path) -> None:
    """Draw every cost by its size, both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "plan"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for name, costs in found.items():
        axes.plot(list(costs), np.array(list(costs.values())) * 1e3, marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="in flight", ylabel="CPU milliseconds each")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def scale(sizes: Sequence[int], engines: Sequence[int]) -> dict[str, dict[int, float]]:
    return {
        "ledger, a session": measured(ledger, sizes),
        "chain, an engine": measured(chain, engines),
        "chain, a region": measured(mirrors, REGIONS),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_scale", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--engines", type=int, nargs="*", default=ENGINES)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    with Run("plan_scale", "torch", "sqlalchemy") as run_:
        found = scale(options.sizes, options.engines)
        rows = [
            [
                name,
                *(f"{size:,}: {cost * 1e3:.3f} ms" for size, cost in costs.items()),
                f"{growth(costs):.2f}",
            ]
            for name, costs in found.items()
        ]
        for row in rows:
            print("  ".join(row))
        if options.plot:
            draw(found, options.plot)
        figures: dict[str, Any] = {
            name: {str(size): cost for size, cost in costs.items()} | {"growth": growth(costs)}
            for name, costs in found.items()
        }
        run_.finish(figures, as_json=options.json)


if __name__ == "__main__":
    main()
