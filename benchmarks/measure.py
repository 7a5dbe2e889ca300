"""The common parts of benchmarks: the machine, a median with its interval, a table, a line of JSON.

Intervals are those of order statistics, which assume nothing about the distribution. Of `n` sorted values the
l-th and the u-th enclose the q-quantile with probability P(l <= B < u), B ~ Binomial(n, q) (David and
Nagaraja, Order Statistics, 7.1). `confidence` is that probability, at least 95 % where `n` suffices (a median
needs 6 values); with fewer values the interval ends at the extremes, and `confidence` is lower.
"""

import argparse
import contextlib
import json
import os
import platform
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.stats import binom

DYING_S = 10.0
CPU_ROOT = Path("/sys/fs/cgroup/cpuacct")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A quantile of `n` values, usually the median, and its interval."""

    value: float
    low: float
    high: float
    n: int
    confidence: float

    def text(self, digits: int) -> str:
        """Return the figure as people read it."""
        return f"{self.value:,.{digits}f} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


def quantile(values: Sequence[float], q: float = 0.5, confidence: float = 0.95) -> Figure:
    """Return the `q`-quantile of independent values with its order-statistic interval.

    >>> quantile([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]).high
    6.0
    """
    rows, n, tail = sorted(values), len(values), (1 - confidence) / 2
    below = binom.cdf(np.arange(n), n, q)  # P(B <= 0), …, P(B <= n - 1)
    low = max(1, int((below <= tail).sum()))
    high = min(n, int((1 - below > tail).sum()) + 1)
    probability = float(below[high - 1] - below[low - 1])
    value = float(np.quantile(rows, q))
    return Figure(value=value, low=rows[low - 1], high=rows[high - 1], n=n, confidence=probability)


def ratios(above: Sequence[float], below: Sequence[float]) -> Figure:
    """Return the median ratio of values measured side by side, so that common slowdowns cancel."""
    return quantile([a / b for a, b in zip(above, below, strict=True)])


class Cpu:
    """The CPU time of this process and its descendants, in seconds; `whole` is True when none is left out.

    The kernel counts a group of processes (`cpuacct`) where root may use it. Elsewhere `getrusage` counts,
    which leaves out children that still run and those nobody waited for, such as a sandbox's.
    """

    def __init__(self) -> None:
        self._before = _resource_usage()
        self._outer = CPU_ROOT / _own_group()
        self._group = self._outer / f"bench-{os.getpid()}"
        try:
            self._group.mkdir()
            (self._group / "cgroup.procs").write_text(str(os.getpid()))
            self.whole = True
        except OSError:
            self.whole = False

    def seconds(self) -> float:
        if not self.whole:
            return _resource_usage()
        return self._before + int((self._group / "cpuacct.usage").read_text()) / 1e9

    def leave(self) -> None:
        """Remove the group and those inside it; the last processes go back to where this one came from.

        A group that is still in use after `DYING_S` stays: the figures do not depend on it.
        """
        if not self.whole:
            return
        end = time.monotonic() + DYING_S
        inner = [Path(folder) for folder, _, _ in os.walk(self._group, topdown=False)]
        for group in inner:
            while not self._removed(group) and time.monotonic() < end:
                time.sleep(0.05)  # a killed process is still dying

    def _removed(self, group: Path) -> bool:
        for process in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                (self._outer / "cgroup.procs").write_text(process)
        try:
            group.rmdir()
        except OSError:
            return False
        return True


def children_of(pid: int) -> Iterator[int]:
    """Yield the processes that the threads of one have started and that still live (Linux only)."""
    for thread in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            yield from map(int, (thread / "children").read_text().split())


def _own_group() -> str:
    """Return the present group of this process: the new group goes inside, so the outer count stays right."""
    listed = Path("/proc/self/cgroup")
    lines = listed.read_text().splitlines() if listed.exists() else []
    rows = (line.split(":", 2) for line in lines)
    return next((path.strip("/") for _, kinds, path in rows if "cpuacct" in kinds.split(",")), "")


def _resource_usage() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Run:
    """One run of a benchmark. Open it first: the load average is taken there.

    `with Run("engine", "torch") as run:` … `run.finish(figures, as_json=True)`
    """

    def __init__(self, name: str, *packages: str) -> None:
        self._name = name
        self._machine = machine(packages)
        self.cpu = Cpu()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu.leave()

    def finish(self, figures: Mapping[str, Any], *, as_json: bool) -> None:
        """Print one JSON object as the last line, with `as_json`."""
        spent = {"cpu_s": round(self.cpu.seconds(), 2), "cpu_whole": self.cpu.whole}
        if as_json:
            report = {"benchmark": self._name, "machine": self._machine, **spent, **figures}
            print(json.dumps(report, allow_nan=False), flush=True)


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """Return the usable cores, the load average over 1, 5 and 15 minutes, and versions."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu": _cpu_name(),
        "load": [round(each, 2) for each in os.getloadavg()],
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def _cpu_name() -> str:
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def schedule_options(name: str, description: str | None) -> argparse.Namespace:
    """Parse the options of a benchmark that runs seeded schedules in several processes."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a header, the first column aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        first, *others = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *others]))
