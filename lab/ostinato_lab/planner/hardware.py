"""Accelerators, models and links by name, and whether a model fits on what is there."""

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato_lab.planner.costs import Costs, PlanError

RUNS = "demo, demo-quarter and smollm2"
TABLE = Path(__file__).with_name("hardware.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One kind of GPU: dense BF16 FLOP a second, and bytes of memory."""

    name: str
    flops: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedModel:
    """A model by its size: weights, those that take part in a token, bytes of each when served."""

    name: str
    weights: float
    active: float
    serving_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRegion:
    """A region that serves, with the bytes a second of its link from the bucket."""

    name: str
    bytes_per_s: float


def models() -> tuple[str, ...]:
    """Return the names of the models that a cluster may be planned for."""
    return tuple(_table()["models"])


def read_model(name: str) -> PlannedModel:
    """Return a model by its name, or of a TOML file with a table `[model]`. Raises PlanError."""
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise PlanError(f"{path}: no such file: give one with a table [model]")
        row = tomllib.loads(path.read_text()).get("model", {})
    else:
        row = _table()["models"].get(name, {})
    needed = {"weights", "active", "serving_bytes"}
    if not row and path.suffix != ".toml":
        raise PlanError(
            f"--model is {name!r}: there are {', '.join(models())}, the runs {RUNS}, or a TOML file"
        )
    if set(row) != needed or not all(isinstance(v, int | float) and v > 0 for v in row.values()):
        raise PlanError(f"--model {name!r}: [model] has exactly {', '.join(sorted(needed))}, all above 0")
    return PlannedModel(name=name, **row)


def read_gpus(text: str) -> tuple[Accelerator, int]:
    """Return the kind and the number of `h100:512`. Raises PlanError naming the kinds that exist."""
    known, (kind, _, count) = _table()["accelerators"], text.partition(":")
    if kind not in known:
        raise PlanError(f"--gpus {text!r}: no accelerator is called {kind!r}: there are {', '.join(known)}")
    if not count.isdecimal() or int(count) < 2:
        raise PlanError(f"--gpus {text!r}: write {kind}:512, with 2 at least, for trainers and engines")
    return Accelerator(name=kind, **known[kind]), int(count)


def read_regions(text: str) -> tuple[ServedRegion, ...]:
    """Return the regions of `us:100,eu:40`, each with the Gbit/s of its link. Raises PlanError."""
    regions = []
    for part in text.split(","):
        name, _, gbits = part.partition(":")
        try:
            rate = float(gbits) * 1e9 / 8
        except ValueError:
            rate = 0.0
        if not name or not 0 < rate < math.inf:
            raise PlanError(f"--regions {text!r}: {part!r} is no NAME:GBIT, as us:100,eu:40")
        regions.append(ServedRegion(name=name, bytes_per_s=rate))
    if len({region.name for region in regions}) < len(regions):
        raise PlanError(f"--regions {text!r}: a name is there twice")
    return tuple(regions)


def check_trainers(model: PlannedModel, kind: Accelerator, count: float, costs: Costs) -> None:
    """Raise PlanError where weights, gradients and moments do not fit on the trainers."""
    needed = model.weights * costs["cluster.train_bytes"]
    had = count * kind.memory * costs["cluster.memory_share"]
    if needed > had:
        raise PlanError(
            f"{model.name} needs {needed / 1e12:.1f} TB to train, and {count:g} {kind.name} have "
            f"{had / 1e12:.1f} TB for it: give {math.ceil(needed / had * count)} trainers or more"
        )


def replica_of(model: PlannedModel, kind: Accelerator, engines: float, costs: Costs) -> int:
    """Return the GPUs of one engine, a power of two. Raises PlanError where there are not as many."""
    needed = model.weights * model.serving_bytes
    room = kind.memory * costs["cluster.serving_share"]
    size = 1 << max(0, math.ceil(math.log2(needed / room)))
    if size > engines:
        raise PlanError(
            f"{model.name} needs {needed / 1e12:.2f} TB to serve, {size} {kind.name}: there are {engines:g} "
            f"with {engines * room / 1e12:.2f} TB in each region"
        )
    return size


def _table() -> dict[str, Any]:
    return tomllib.loads(TABLE.read_text())
