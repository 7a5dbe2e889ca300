"""bfloat16 is chosen only where the hardware has it."""

from pathlib import Path

import pytest

from ostinato.engine.machine import cpu_flags, facts, free_bytes, precision


@pytest.mark.parametrize(
    ("flags", "gpus", "dtype", "reason"),
    [
        ({"avx2"}, (), "float32", "would emulate"),
        ({"avx2", "avx512f"}, (), "float32", "would emulate"),
        ({"avx512_bf16"}, (), "bfloat16", "avx512_bf16"),
        ({"amx_bf16", "avx512_bf16"}, (), "bfloat16", "amx_bf16, avx512_bf16"),
        ({"bf16", "sve"}, (), "bfloat16", "bf16"),
        (set(), (9.0,), "bfloat16", "1 GPU"),
        ({"avx512_bf16"}, (8.0, 7.5), "float32", "7.5"),
    ],
)
def test_the_hardware_decides(flags: set[str], gpus: tuple[float, ...], dtype: str, reason: str) -> None:
    chosen = precision(frozenset(flags), gpus)
    assert chosen.dtype == dtype and reason in chosen.reason


def test_flags_are_those_that_the_system_lists(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nvmx flags\t: tsc\nflags\t\t: fpu avx2 amx_bf16\n\nprocessor\t: 1\n")
    assert cpu_flags(info) == {"fpu", "avx2", "amx_bf16"}
    assert cpu_flags(tmp_path / "nowhere") == frozenset()


def test_the_doctor_gives_the_reason() -> None:
    (text,) = facts().values()
    assert text.startswith(("float32, since ", "bfloat16, since "))


def test_free_memory_is_what_the_system_says_or_all_of_it(tmp_path: Path) -> None:
    info = tmp_path / "meminfo"
    info.write_text("MemTotal:       100 kB\nMemAvailable:    60 kB\n")
    assert free_bytes(info) == 60 * 1024
    info.write_text("MemTotal:       100 kB\n")
    assert free_bytes(info) == free_bytes(tmp_path / "missing") > 60 * 1024
