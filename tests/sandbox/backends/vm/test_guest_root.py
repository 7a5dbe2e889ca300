"""The modules that are copied into a guest can be imported there, without the rest of the package.

Covers sandbox/backends/vm/guest_root.py: all that sandbox/guest/vm_main.py imports is copied.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from ostinato.sandbox.backends.vm import guest_root


@pytest.mark.parametrize("isolated", [["-I", "-S"], ["-I"]], ids=["gvisor", "qemu"])
def test_a_guest_can_import_its_first_process(tmp_path: Path, isolated: list[str]) -> None:
    guest_root.copy_modules(tmp_path)
    start = guest_root.START.replace(f"'{guest_root.AGENT}'", repr(str(tmp_path))).removesuffix("; main()")
    code = (
        f"{start}; names = [name for name in sys.modules if name.startswith('ostinato.')]; "
        f"assert all(sys.modules[name].__file__.startswith({str(tmp_path)!r}) for name in names)"
    )
    done = subprocess.run(
        [sys.executable, *isolated, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_mount_point_is_a_directory(tmp_path: Path) -> None:
    guest_root.make_mount_points(tmp_path)
    for path in ("repo", "tmp", ".scratch", ".pristine", "mnt", "run/ostinato", "proc", "dev", "etc"):
        assert (tmp_path / path).is_dir()
