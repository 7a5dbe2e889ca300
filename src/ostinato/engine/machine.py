"""The data type that this machine computes fast in, and why. Torch-free.

A processor without instructions for bfloat16 emulates it, many times slower than float32, and a model that
fits in memory then takes minutes for one token without an error.
"""

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

CPU_INFO, MEMORY_INFO = Path("/proc/cpuinfo"), Path("/proc/meminfo")
BF16_FLAGS = ("amx_bf16", "avx512_bf16", "bf16")
"""The flags of /proc/cpuinfo for x86 (AMX, AVX-512) and for ARM."""
BF16_COMPUTE = 8.0
"""The first compute capability of NVIDIA's GPUs with bfloat16 (Ampere)."""
QUERY = ("--query-gpu=compute_cap", "--format=csv,noheader")
PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """A data type with the reason for it.

    >>> Precision(dtype="float32", reason="no bfloat16 in hardware").dtype
    'float32'
    """

    dtype: str
    reason: str


def precision(flags: frozenset[str], gpus: tuple[float, ...]) -> Precision:
    """Return bfloat16 where the hardware has it, else float32.

    `flags` are those of the processor, `gpus` the compute capability of each GPU.
    """
    if gpus:
        weakest = min(gpus)
        if weakest >= BF16_COMPUTE:
            return Precision(
                dtype="bfloat16", reason=f"{len(gpus)} GPU(s) of compute capability {weakest} or more"
            )
        return Precision(
            dtype="float32", reason=f"a GPU of compute capability {weakest} has no bfloat16: 8.0 has"
        )
    if found := [flag for flag in BF16_FLAGS if flag in flags]:
        return Precision(dtype="bfloat16", reason=f"the processor has {', '.join(found)}")
    return Precision(
        dtype="float32",
        reason=f"no GPU, and the processor has none of {', '.join(BF16_FLAGS)}: it would emulate bfloat16",
    )


def precision_here() -> Precision:
    """Return the data type that `auto` means on this machine."""
    return precision(cpu_flags(), gpus())


def facts() -> dict[str, str]:
    """Return what `ostinato doctor` says about this machine."""
    here = precision_here()
    return {"dtype of engines": f"{here.dtype}, since {here.reason}"}


def cpu_flags(path: Path = CPU_INFO) -> frozenset[str]:
    """Return the flags of the first processor; none where the system does not list them."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return frozenset()
    name = "flags" if platform.machine() in {"x86_64", "AMD64"} else "Features"
    listed = next((line for line in lines if line.partition(":")[0].strip() in {name, "flags"}), "")
    return frozenset(listed.partition(":")[2].split())


def free_bytes(path: Path = MEMORY_INFO) -> int:
    """Return the memory that can be used without swapping; all of it where the system does not say."""
    try:
        fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def gpus() -> tuple[float, ...]:
    """Return the compute capability of every NVIDIA GPU; none where its driver is not installed."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ()
    try:
        done = subprocess.run(
            [command, *QUERY], capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        return tuple(float(line) for line in done.stdout.split()) if done.returncode == 0 else ()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ()
