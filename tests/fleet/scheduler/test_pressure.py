"""The load of a machine, read from kernel files that the test writes."""

from pathlib import Path

import pytest

from ostinato.fleet.scheduler.pressure import Gauge

MEMORY = "MemTotal: 4194304 kB\nMemFree: 1 kB\nMemAvailable: 1048576 kB\n"
PSI = "some avg10={} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"


def kernel(directory: Path, busy: int, idle: int, psi: tuple[float, ...] = ()) -> Path:
    (directory / "pressure").mkdir(exist_ok=True)
    (directory / "stat").write_text(f"cpu {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\n")
    (directory / "meminfo").write_text(MEMORY)
    for name, share in zip(("cpu", "memory", "io"), psi, strict=False):
        (directory / "pressure" / name).write_text(PSI.format(share))
    return directory


def test_the_cpu_is_busy_since_the_last_reading(tmp_path: Path) -> None:
    gauge = Gauge(tmp_path, proc=kernel(tmp_path, 100, 100))
    kernel(tmp_path, 130, 110)
    assert gauge.read().cpu == pytest.approx(0.75)
    kernel(tmp_path, 130, 150)
    assert gauge.read().cpu == 0.0
    assert gauge.read().cpu == 0.0, "no time has passed"


def test_available_memory_counts_as_free(tmp_path: Path) -> None:
    gauge = Gauge(tmp_path, spare_mb=96, proc=kernel(tmp_path, 1, 1))
    assert gauge.read().memory == pytest.approx(0.75)
    assert gauge.capacity().memory_mb == 4000


def test_stalls_are_shares_where_the_kernel_counts_them(tmp_path: Path) -> None:
    assert Gauge(tmp_path, proc=kernel(tmp_path, 1, 1)).read().stalls == ()
    gauge = Gauge(tmp_path, proc=kernel(tmp_path, 1, 1, (50.0, 12.5, 0.0)))
    assert gauge.read().stalls == (0.5, 0.125, 0.0)
