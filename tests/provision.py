"""Environments with the packages that something needs: `python tests/provision.py FOLDER EXTRA…`.

uv installs them where it is on PATH or pip can bring it: in seconds, with files that environments share.
pip does otherwise. Neither is asked for a torch built for CUDA: where no folder of wheels brings torch, uv
takes the one for CPUs. Needs nothing but the standard library, since nothing is installed when it starts.
"""

import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
PATIENCE_S = 1800


def main(arguments: Sequence[str]) -> int:
    """Make the environment if there is none, and install ostinato with the extras into it, editable."""
    folder, extras = Path(arguments[0]), ",".join(arguments[1:])
    print(f"installing ostinato and what [{extras}] needs into {folder}", flush=True)
    python = environment(folder)
    try:
        install(python, "--constraint", str(CONSTRAINTS), "--editable", f"{ROOT}[{extras}]")
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


def environment(folder: Path) -> Path:
    """Return the Python of a virtual environment, which is made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True, symlinks=True)
    return python


def install(python: Path, *words: str, quiet: bool = False) -> None:
    """Install what `words` ask for, as pip reads them, for an interpreter.

    Its progress is on the screen unless `quiet`. Raises CalledProcessError, after the installer's own words.
    """
    if uv := _uv(python):
        # Unlike pip, uv leaves it to each process to compile what it imports: torch takes four seconds.
        options = ("--compile-bytecode", "--python", str(python))
        command = [uv, "pip", "install", *options, *_sources(python), *words]
        if subprocess.run([*command, *["--quiet"] * quiet], check=False, timeout=PATIENCE_S).returncode == 0:
            return
        print("uv did not install it: trying pip", flush=True)
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    subprocess.run([*command, *["--quiet"] * quiet, *words], check=True, timeout=PATIENCE_S)


def _uv(python: Path) -> str | None:
    """Return the program uv: the one on PATH, or one that pip brings into the environment of `python`."""
    beside = python.parent / "uv"
    if (found := shutil.which("uv")) or beside.exists():
        return found or str(beside)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"]
    done = subprocess.run(pip, check=False, capture_output=True, timeout=PATIENCE_S)
    return str(beside) if done.returncode == 0 and beside.exists() else None


def _sources(python: Path) -> list[str]:
    """Return the flags by which uv looks where pip is configured to look, and takes a torch for CPUs.

    uv does not read pip's configuration. A folder of wheels with torch in it decides which build is taken.
    """
    command = [str(python), "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    settings = re.findall(r"^\S+?\.([\w-]+)='(.*)'$", listed, re.MULTILINE)
    links = sorted({link for name, value in settings if name == "find-links" for link in value.split()})
    flags = [word for link in links for word in ("--find-links", link)]
    for name, value in settings:
        if name == "index-url":
            flags += ["--default-index", value]
    has_torch = any(next(Path(link).glob("torch-*.whl"), None) for link in links)
    return flags if has_torch else [*flags, "--torch-backend", "cpu"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
