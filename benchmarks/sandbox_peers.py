"""The peers of the sandbox benchmark: bubblewrap, `runsc do`, and SWE-ReX's local deployment."""

import asyncio
import json
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

from benchmarks.measure import Cpu, Figure, quantile
from ostinato.sandbox import SandboxError

Row = dict[str, Figure]
BWRAP = "bwrap --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp --unshare-all true"
RUNSC = "runsc --network=none --ignore-cgroups do true"
SWEREX = "swe-rex==1.4.0"
HOME = Path(__file__).parents[1] / ".clients" / "swerex"
SCRIPT = """
import asyncio, json, sys, time
from swerex.deployment.local import LocalDeployment
from swerex.runtime.abstract import CreateBashSessionRequest

async def once():
    start, deployment = time.perf_counter(), LocalDeployment()
    await deployment.start()
    try:
        await deployment.runtime.create_session(CreateBashSessionRequest())
        return (time.perf_counter() - start) * 1e3
    finally:
        await deployment.stop()

async def main(rounds, patience_s):
    end, walls = time.monotonic() + patience_s, []
    while len(walls) < 3 or (len(walls) < rounds and time.monotonic() < end):
        walls.append(await once())
    print(json.dumps(walls[1:]))

asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
"""


async def command_peer(command: str, rounds: int, patience_s: float, cpu: Cpu) -> Row:
    """Measure a program that runs `true` in a sandbox of its own, from its start to its end."""
    if shutil.which(command.split(maxsplit=1)[0]) is None:
        raise SandboxError(f"{command.split(maxsplit=1)[0]} is not installed")
    walls, end = [await run_once(command)], time.monotonic() + patience_s
    while len(walls) < 3 or (len(walls) <= rounds and time.monotonic() < end):
        walls.append(await run_once(command))
    count, spent, start = max(len(walls) // 4, 1), cpu.seconds(), time.perf_counter()
    await asyncio.gather(*(churn(command, count) for _ in range(4)))
    speed = 4 * count / (time.perf_counter() - start)
    each = (cpu.seconds() - spent) * 1e3 / (4 * count)
    return starts(walls[1:]) | {"envs_per_s": quantile([speed]), "cpu_ms_each": quantile([each])}


async def churn(command: str, count: int) -> None:
    for _ in range(count):
        await run_once(command)


async def run_once(command: str) -> float:
    """Return the milliseconds of one run."""
    start = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *command.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        output_end = output.decode(errors="replace").strip()[-200:]
        raise SandboxError(f"{command.split(maxsplit=1)[0]} failed: {output_end}")
    return (time.perf_counter() - start) * 1e3


def starts(walls: list[float]) -> Row:
    return {"start_p50_ms": quantile(walls), "start_p99_ms": quantile(walls, 0.99)}


async def swerex_peer(rounds: int, patience_s: float) -> Row:
    """Measure SWE-ReX: a shell session without isolation. Its environment is kept between runs."""
    python = await asyncio.to_thread(install)
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-c", SCRIPT, str(rounds), str(patience_s)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate()
    if process.returncode:
        raise SandboxError(f"swe-rex failed: {errors.decode(errors='replace').strip()[-200:]}")
    return starts(json.loads(output.splitlines()[-1]))


def install() -> Path:
    """Install SWE-ReX if needed and return the Python that has it."""
    stamp = HOME / "benchmark.stamp"
    if not stamp.exists() or stamp.read_text() != SWEREX:
        print(f"installing {SWEREX} …", file=sys.stderr, flush=True)
        venv.create(HOME, with_pip=True, symlinks=True)
        pip = [str(HOME / "bin" / "pip"), "install", "--quiet", SWEREX]
        done = subprocess.run(pip, check=False, capture_output=True, text=True)
        if done.returncode:
            raise SandboxError(f"{SWEREX} was not installed: {done.stderr.strip()[-200:]}")
        stamp.write_text(SWEREX)
    return HOME / "bin" / "python"
