"""Build the wheel and try it as a stranger would: `make wheel`.

The wheel is built from the files that git knows and installed into an empty virtual environment outside
of any clone, first alone, then with the dependencies of the demo. There the demo runs from an empty
directory, with the settings of `small.toml`: it is killed while it practises, and goes on. The wheel is left
in `dist/`, with its bill of materials and the sums of both.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.bill import sign, write_bill
from tests.provision import CONSTRAINTS, ROOT, environment, install

SMALL = ROOT / "tests" / "small.toml"
BEGUN = (("stages", "before.json"), ("learner-practice", "learner.jsonl"))
"""The files of a run that practises."""
PATIENCE_S = 900
INTEGRITY = ("turns_unaccounted", "prompts_trained_twice", "digest_mismatches", "requests_failed_by_swap")


def main() -> int:
    """Return 0 when the wheel works, 1 with a sentence when it does not."""
    try:
        with tempfile.TemporaryDirectory(prefix="ostinato-wheel-") as place:
            python = environment(Path(place) / "venv")
            wheel = build(python, Path(place))
            check_contents(wheel)
            install(python, "--constraint", str(CONSTRAINTS), str(wheel), quiet=True)
            run([str(python.with_name("ostinato")), "--help"], Path(place), {"PATH": os.environ["PATH"]})
            install(python, "--constraint", str(CONSTRAINTS), f"{wheel}[demo]", quiet=True)
            check_demo(python.parent, Path(place))
            dist = made(ROOT / "dist")
            kept = Path(shutil.copy(wheel, dist))
            write_bill(python, Path(place), dist / "bill.cdx.json")
            signed = sign(dist)
    except (AssertionError, subprocess.CalledProcessError) as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 1
    print(f"wheel: {kept.relative_to(ROOT)} is whole; outside of a clone its demo was killed and went on")
    print(f"wheel: its bill of materials and SHA256SUMS are beside it, {signed}")
    return 0


def made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def tracked() -> list[str]:
    """Return the files of the repository, as paths from its root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def build(python: Path, place: Path) -> Path:
    """Return the wheel of the tracked files; a copy is built, so that no old `build/` gets into it."""
    source = place / "source"
    for name in tracked():
        shutil.copy(ROOT / name, made((source / name).parent))
    command = [str(python), "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", str(place)]
    subprocess.run([*command, str(source)], check=True)
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
    """Raise AssertionError unless a demo that is killed goes on and ends well, without a way to the clone."""
    empty = made(place / "empty")
    settings = shutil.copy(SMALL, made(place / "settings"))
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(made(place / "home"))}
    variables |= {"OMP_NUM_THREADS": "1"}
    where = "import ostinato; print(ostinato.__file__)"
    imported = run([str(programs / "python"), "-c", where], empty, variables)
    assert imported.startswith(str(programs.parent)), f"ostinato is imported from {imported}"
    folder = empty / "runs" / "demo"
    command = [str(programs / "ostinato"), "demo", "--config", str(settings), "--json"]
    kill_in_practice([*command, "--directory", str(folder)], empty, variables, folder)
    taught = (folder / "stages" / "teach.json").read_text()
    whole = json.loads(run(command, empty, variables).splitlines()[-1])["integrity"]
    wrong = {name: whole[name] for name in INTEGRITY if whole[name]}
    assert not wrong, f"the demo went on, but not whole: {wrong}"
    assert (folder / "stages" / "teach.json").read_text() == taught, "the demo taught a second time"
    for name in ("report.md", "report.html"):
        assert (folder / name).exists(), f"the demo wrote no {name}"


def kill_in_practice(command: list[str], directory: Path, variables: Mapping[str, str], folder: Path) -> None:
    """Start a run, kill it by SIGKILL once it practises, and wait until its services ended by themselves."""
    process = subprocess.Popen(command, cwd=directory, env=variables, stdout=subprocess.DEVNULL)
    until = time.monotonic() + PATIENCE_S
    while not all(folder.joinpath(*sign).exists() for sign in BEGUN):
        assert process.poll() is None, f"the demo ended with {process.returncode} before it practised"
        assert time.monotonic() < until, f"the demo did not practise within {PATIENCE_S} s"
        time.sleep(0.05)
    process.kill()
    process.wait()
    while left := services(folder):
        assert time.monotonic() < until, f"services of a killed demo go on: {left}"
        time.sleep(0.05)


def services(folder: Path) -> list[str]:
    """Return the command lines of the processes that name the folder of a run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            found += [" ".join(words)] * any(str(folder) in word for word in words)
    return found


def run(command: list[str], directory: Path, variables: Mapping[str, str]) -> str:
    """Return what a program writes to its standard output; its errors go to ours."""
    done = subprocess.run(
        command, cwd=directory, env=variables, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
