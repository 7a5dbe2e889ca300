"""`ostinato doctor`: tries every backend on this machine, and shows what works.

Every line of its table comes from something that was run, never from a device node, a flag or a version.
Facts of other rooms about the machine, such as the data type of engines, stand below it.
"""

import argparse
import asyncio
import json
import os
import platform
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.choose import KINDS, BackendKind, probe
from ostinato.sandbox.linux import cgroup, landlock

DONE, FAILED = 0, 1
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the table: a trial, its result, missing abilities, and advice.

    >>> Finding(name="ns", works=True, took_s=0.4, detail="namespaces").advice
    ''
    """

    name: str
    works: bool
    took_s: float
    detail: str
    lost: tuple[str, ...] = ()
    advice: str = ""


Facts = Callable[[], Mapping[str, str]]
"""A function that returns facts of other rooms about the machine, which need no trial."""


def register(commands: Any, facts: Facts = dict) -> None:
    """Add the command to the subparsers of `ostinato`."""
    doctor = commands.add_parser("doctor")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.set_defaults(run=partial(_run, facts=facts))


def _run(options: argparse.Namespace, *, facts: Facts) -> int:
    findings = asyncio.run(examine(KINDS))
    others = facts()
    if options.json:
        known = {**machine(), **others}
        print(json.dumps({"machine": known, "findings": [asdict(each) for each in findings]}))  # noqa: T201
    else:
        _show(findings, others)
    return DONE if any(each.works for each in findings if each.name in KINDS) else FAILED


def machine() -> dict[str, Any]:
    """Return facts about the machine that the trials ran on."""
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "root": os.geteuid() == 0,
    }


async def examine(kinds: Mapping[str, BackendKind] = KINDS) -> list[Finding]:
    """Try every backend, then the abilities of the kernel that they use."""
    findings = [await _timed(name, _try_backend(kind), kind.advice) for name, kind in kinds.items()]
    findings += [
        await _timed(name, asyncio.to_thread(attempt), advice)
        for name, attempt, advice in (
            ("landlock rules", _try_landlock, "boot Linux 5.13 or later with `landlock` in its lsm= list"),
            ("cgroups", _try_cgroups, "run as root, or let systemd delegate memory to your user"),
        )
    ]
    return findings


Attempt = Coroutine[Any, Any, tuple[str, tuple[str, ...]]]


async def _timed(name: str, attempt: Attempt, advice: str) -> Finding:
    """Run an attempt and return its finding, or the reason of its failure."""
    start = time.monotonic()
    try:
        detail, lost = await asyncio.wait_for(attempt, PATIENCE_S)
    except (SandboxError, OSError, RuntimeError, TimeoutError) as error:
        text = str(error) or type(error).__name__
        took_s = time.monotonic() - start
        return Finding(name=name, works=False, took_s=took_s, detail=text, advice=advice)
    return Finding(name=name, works=True, took_s=time.monotonic() - start, detail=detail, lost=lost)


async def _try_backend(kind: BackendKind) -> tuple[str, tuple[str, ...]]:
    backend = await probe(kind)
    can = backend.capabilities
    await backend.aclose()
    gives = [
        "a boundary" if can.boundary else "no boundary",
        *(["forks"] if can.fork else []),
        *([f"limits by {', '.join(sorted(can.limits))}"] if can.limits else []),
        *(["egress by a proxy"] if can.egress else []),
    ]
    return f"{can.isolation}: {', '.join(gives)}", can.lost


def _try_landlock() -> tuple[str, tuple[str, ...]]:
    version = landlock.probe()
    return f"ABI {version}: a file outside the rules could not be read", landlock.missing(version)


def _try_cgroups() -> tuple[str, tuple[str, ...]]:
    usable = cgroup.usable()
    if usable is None:
        raise SandboxError("no cgroup can be made: the memory of each process is bounded, not their sum")
    version, parent = usable
    return f"version {version}: a group in {parent} was made and bounded", ()


def _show(findings: list[Finding], others: Mapping[str, str]) -> None:
    where = machine()
    who = "root" if where["root"] else "an ordinary user"
    console = Console(highlight=False)
    console.print(
        f"{where['system']} {where['kernel']}, {where['machine']}, {where['cores']} cores, as {who}"
    )
    table = Table("what", "works", "took", "found", box=None, pad_edge=False, header_style="bold")
    for each in findings:
        table.add_row(each.name, "yes" if each.works else "no", f"{each.took_s:.1f} s", Text(_text(each)))
    console.print(table)
    for name, text in others.items():
        console.print(Text(f"{name}: {text}"))


def _text(finding: Finding) -> str:
    lines = [finding.detail, *(f"lost: {lost}" for lost in finding.lost)]
    return "\n".join([*lines, *([f"do: {finding.advice}"] if finding.advice else [])])
