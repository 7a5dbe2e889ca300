"""One practice stage as children of this machine and on three Ray nodes, and the record's two databases.

    python -m benchmarks.cluster [--json] [--rounds 1] [--versions 2]
    python -m benchmarks.cluster --kills 200 [--json]        # see cluster_kills.py; nothing else is measured

A synchronous run, whose account does not depend on speed, practises with a tiny model of random weights:
first with `[placement] kind = "local"` and no cluster, then on a Ray cluster of three nodes, which are
processes here, as it ships (`ray`) and without its own logs and measurements (`lean`). The overheads are the
shares of CPU that those runs take more, of all processes; starting and ending the cluster is left out, and
what the cluster's own processes do meanwhile is in. `same_account` says whether all ledgers end in the same
digest. The other figures are those of a short `benchmarks.store`, which runs last. `--trace` prints what
each kind of process took; the tracer's own work is in this program's.
Needs Ray and PostgreSQL, which `make test-ray` and `make test-postgres` install.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fuzz.practice import SHAPE
from fuzz.ray_nodes import LEAN, three_nodes

from benchmarks import store as record
from benchmarks.cluster_cpu import CpuByProcess
from benchmarks.cluster_kills import MUST_BE_ZERO, killed
from benchmarks.measure import Cpu, Run, quantile, table
from ostinato.config import load
from ostinato.loop.config import RunConfig
from ostinato.loop.folder import open_run
from ostinato.loop.run import START
from ostinato.loop.run import Run as Loop
from ostinato.loop.stages.prepare import prepare
from ostinato.store import Ledger, Store

PRACTICE = """
[sandbox]
backend = "process"
[engine]
slots = 24
context = 512
[practice]
mode = "synchronous"
group_size = 4
groups_at_once = 2
ready_ahead = 3
lease_s = 60.0
[refine]
versions = {versions}
groups = 2
[schedule]
stages = ["practice"]
[model]
path = "{start}"
"""
SHORT = ["--seconds", "1.5", "--prompts", "12"]
"""The options of the benchmark of the record."""


CLUSTERS: dict[str, dict[str, Any]] = {"ray": {"settings": {}}, "lean": {"settings": LEAN, "logs": False}}
"""A cluster as it ships, and one that measures nothing and sends no logs."""


def made(folder: Path) -> Path:
    """Make a checkpoint of a tiny model with random weights, and return it."""
    (folder / "start.toml").write_text(SHAPE)
    run, config = Loop(directory=folder / "start"), load(RunConfig, folder / "start.toml")
    run.directory.mkdir()
    open_run(run, config, fresh=False)
    asyncio.run(prepare(config, run))
    return run.checkpoint(START)


def practise(folder: Path, name: str, text: str, cpu: Cpu, *, trace: bool) -> dict[str, Any]:
    """Run the file to its end; return its CPU seconds and what the ledger says."""
    (folder / f"{name}.toml").write_text(text)
    parts = CpuByProcess()
    if trace:
        parts.begin()
        parts.start()
    before = cpu.seconds()
    command = [sys.executable, "-m", "ostinato", "run", str(folder / f"{name}.toml")]
    subprocess.run([*command, "--directory", str(folder / name)], check=True, stdout=subprocess.DEVNULL)
    spent = cpu.seconds() - before
    if trace:
        parts.end()
        for kind, (seconds, count) in parts.so_far().items():
            print(f"{name}: {seconds:8.2f} s {count:4.0f} {kind}", file=sys.stderr, flush=True)
    with closing(Store.open(folder / name / "store.db")) as store:
        ledger = Ledger(store)
        counts = {"trained_twice": ledger.trained_twice(), "lost": ledger.unended() + ledger.unaccounted()}
    root = json.loads((folder / name / "report.json").read_text())["practice"]["root"]
    return {"cpu_s": spent, "root": root, **counts}


def placements(options: argparse.Namespace, cpu: Cpu) -> dict[str, Any]:
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in ("local", *CLUSTERS)}
    with TemporaryDirectory() as parent:
        text = PRACTICE.format(versions=options.versions, start=made(Path(parent)))
        for number in range(options.rounds):
            name = f"local-{number}"
            found["local"].append(practise(Path(parent), name, text, cpu, trace=options.trace))
            for kind, settings in CLUSTERS.items():
                with three_nodes(**settings) as cluster:
                    ray = f'{text}\n[placement]\nkind = "ray"\naddress = "{cluster.address}"\n'
                    name = f"{kind}-{number}"
                    found[kind].append(practise(Path(parent), name, ray, cpu, trace=options.trace))
    both = [each for runs in found.values() for each in runs]
    overhead = {kind: more_than(found["local"], found[kind]) for kind in CLUSTERS}
    return {
        "ray_overhead": overhead["ray"],
        "lean_overhead": overhead["lean"],
        **{f"cpu_s_{kind}": [each["cpu_s"] for each in runs] for kind, runs in found.items()},
        "same_account": len({each["root"] for each in both}) == 1,
        "trained_twice": sum(each["trained_twice"] for each in both),
        "lost": sum(each["lost"] for each in both),
    }


def more_than(local: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the median share of CPU that the other runs took more, its interval and their number."""
    found = quantile([b["cpu_s"] / a["cpu_s"] - 1 for a, b in zip(local, other, strict=True)])
    return [found.value, found.low, found.high, found.n]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=1, help="practice stages on each placement")
    parser.add_argument("--versions", type=int, default=2)
    parser.add_argument("--trace", action="store_true", help="say what each kind of process took")
    parser.add_argument("--kills", type=int, default=0, help="kills under runs on the cluster, instead")
    parser.add_argument("--every", type=float, default=8.0, help="mean seconds between two kills")
    parser.add_argument("--patience", type=float, default=900.0, help="seconds without a row that are a hang")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.kills:
        with Run("cluster", "ray", "sqlalchemy") as whole:
            figures = killed(options)
            table(["", "value"], [[name, json.dumps(value)] for name, value in figures.items()])
            whole.finish({**figures, "options": vars(options)}, as_json=options.json)
        return int(any(figures[each] for each in MUST_BE_ZERO))
    with Run("cluster", "ray", "sqlalchemy") as whole:
        placed = placements(options, whole.cpu)
        kept = record.figures_of(record.measured(record.read_options(SHORT), whole.cpu))
        kills, books = kept["kills"].values(), kept["ledger"].values()
        figures = {
            **placed,
            "kills": sum(each["kills"] for each in kills),
            "trained_twice": placed["trained_twice"] + sum(each["trained_twice"] for each in books),
            "lost": placed["lost"] + sum(each["lost"] for each in kills),
            **{name: kept[name] for name in kept if name.startswith("turns_per_s")},
        }
        table(["", "value"], [[name, json.dumps(value)] for name, value in figures.items()])
        whole.finish({**figures, "options": vars(options)}, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
