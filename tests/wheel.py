"""Build the wheel and try it as a stranger would: `make wheel`.

The wheel is built from the files that git knows and installed into an empty virtual environment outside
of any clone, first alone, then with the dependencies of the demo. There the demo runs from an empty
directory, with the settings of `small.toml`. The wheel is left in `dist/`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SMALL = ROOT / "tests" / "small.toml"
CONSTRAINTS = ROOT / "constraints.txt"
INTEGRITY = ("turns_unaccounted", "prompts_trained_twice", "digest_mismatches", "requests_failed_by_swap")


def main() -> int:
    """Return 0 when the wheel works, 1 with a sentence when it does not."""
    try:
        with tempfile.TemporaryDirectory(prefix="ostinato-wheel-") as place:
            programs = environment(Path(place) / "venv")
            wheel = build(programs, Path(place))
            check_contents(wheel)
            pip(programs, "install", "--constraint", str(CONSTRAINTS), str(wheel))
            run([str(programs / "ostinato"), "--help"], Path(place), {"PATH": os.environ["PATH"]})
            pip(programs, "install", "--constraint", str(CONSTRAINTS), f"{wheel}[demo]")
            check_demo(programs, Path(place))
            kept = Path(shutil.copy(wheel, made(ROOT / "dist")))
    except (AssertionError, subprocess.CalledProcessError) as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 1
    print(f"wheel: {kept.relative_to(ROOT)} holds every module, installs, and runs a demo outside of a clone")
    return 0


def made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def environment(place: Path) -> Path:
    """Return the folder of programs of a new virtual environment."""
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    return place / "bin"


def pip(programs: Path, *arguments: str) -> None:
    """Run pip quietly. Raises CalledProcessError when it fails."""
    subprocess.run([str(programs / "python"), "-m", "pip", "--quiet", *arguments], check=True)


def tracked() -> list[str]:
    """Return the files of the repository, as paths from its root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def build(programs: Path, place: Path) -> Path:
    """Return the wheel of the tracked files; a copy is built, so that no old `build/` gets into it."""
    source = place / "source"
    for name in tracked():
        shutil.copy(ROOT / name, made((source / name).parent))
    pip(programs, "wheel", "--no-deps", "--wheel-dir", str(place), str(source))
    return next(place.glob("ostinato-*.whl"))


def check_contents(wheel: Path) -> None:
    """Raise AssertionError unless every file of both packages, and nothing of the tests, is in the wheel."""
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    packages = ("src/ostinato/", "lab/ostinato_lab/")
    wanted = {name.partition("/")[2] for name in tracked() if name.startswith(packages)}
    assert {Path(name).name for name in wanted} >= {"kernel.c", "py.typed"}
    assert not wanted - inside, f"the wheel lacks {sorted(wanted - inside)}"
    assert not inside - wanted, f"the wheel holds {sorted(inside - wanted)}, which the clone does not"


def check_demo(programs: Path, place: Path) -> None:
    """Raise AssertionError unless the demo ends well in an empty directory, without a way to the clone."""
    empty = made(place / "empty")
    settings = shutil.copy(SMALL, made(place / "settings"))
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(made(place / "home"))}
    variables |= {"OMP_NUM_THREADS": "1"}
    where = "import ostinato; print(ostinato.__file__)"
    imported = run([str(programs / "python"), "-c", where], empty, variables)
    assert imported.startswith(str(programs.parent)), f"ostinato is imported from {imported}"
    command = [str(programs / "ostinato"), "demo", "--config", str(settings), "--json"]
    whole = json.loads(run(command, empty, variables).splitlines()[-1])["integrity"]
    wrong = {name: whole[name] for name in INTEGRITY if whole[name]}
    assert not wrong, f"the demo ran, but not whole: {wrong}"
    for name in ("report.md", "report.html"):
        assert (empty / "runs" / "demo" / name).exists(), f"the demo wrote no {name}"


def run(command: list[str], directory: Path, variables: Mapping[str, str]) -> str:
    """Return what a program writes to its standard output; its errors go to ours."""
    done = subprocess.run(
        command, cwd=directory, env=variables, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
