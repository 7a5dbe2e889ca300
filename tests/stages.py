"""The stages of the check: those that a change can break (`.ci/run`), or all of them (`make full`).

`.ci/full` holds the commit on which every stage last passed, written by `make full`. A stage with rooms of
its own is run when a file that differs from that commit is imported by one of these rooms, directly or not.
Without such a commit every stage is run. Each stage is a target of the Makefile and starts on a bare machine.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.arrows import ROOT, closure, modules

PASSED = ROOT / ".ci" / "full"
EVERYWHERE = {".ci/run", "Makefile", "constraints.txt", "pyproject.toml"}
EVERYWHERE |= {f"tests/{name}.py" for name in ("arrows", "conftest", "provision", "stages")}
"""Files by which every stage can change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One part of the check.

    >>> Stage(target="test-browser", rooms=("ostinato.dashboard", "tests.dashboard.test_browser")).always
    False
    """

    target: str
    """The Makefile's target."""
    rooms: tuple[str, ...] = ()
    """Modules, or packages with all below them, that the stage is about. Empty: each change runs it."""
    arguments: str = ""
    """The stage's own arguments for pytest, and the folder of its tests where any arguments replace it."""
    only: str = ""
    """The one kind of check, `change` or `full`, of which the stage is a part; empty for both."""

    @property
    def always(self) -> bool:
        return not self.rooms

    def reach(self) -> set[str]:
        """Return the files that the stage's rooms import, as paths from the root.

        Its tests start the whole program: their own imports of the package would reach every file. So they
        count with the helpers that they share, and the rooms that they are about are named beside them.
        """
        names = [name for name in modules() if any(f"{name}.".startswith(f"{room}.") for room in self.rooms)]
        ours = closure([name for name in names if name.startswith("ostinato.")])
        theirs = closure(set(names) - ours, ["tests", "fuzz"])
        return {str(modules()[name].relative_to(ROOT)) for name in ours | theirs}

    def is_touched_by(self, changed: Collection[str]) -> bool:
        """Return whether a change of these files can break the stage.

        A file that is not Python, as a template, belongs to the nearest folder above it that has modules.
        """
        reached = self.reach()
        folders = {str(Path(name).parent) for name in reached}
        return any(
            name in EVERYWHERE or name in reached or (_is_data(name) and _owner(name) in folders)
            for name in changed
        )


# A test that fails runs once more, until three runs beside busy loops have been seen to need none of that.
AGAIN = "--reruns 1 --reruns-delay 5"
STAGES = (
    Stage(target="lint"),
    Stage(target="types"),
    Stage(target="test", only="change", arguments=AGAIN),
    Stage(target="test-deep", only="full", arguments=AGAIN),
    Stage(target="wheel"),
    Stage(target="container", only="full"),
    Stage(target="test-postgres", arguments=AGAIN),
    Stage(target="test-agent", only="change", arguments=AGAIN),
    Stage(
        target="test-clients",
        rooms=(
            "ostinato.gateway",
            "ostinato.harness.outside",
            "ostinato.loop.team.clients",
            "ostinato.exchange.dataset",
            "tests.clients",
        ),
        arguments=f"tests/clients {AGAIN}",
    ),
    Stage(
        target="test-vllm",
        rooms=("ostinato.engine.vllm", "tests.vllm"),
        arguments=f"tests/vllm {AGAIN}",
    ),
    Stage(target="team", only="full", arguments="--kills 10"),
    Stage(target="test-browser", rooms=("ostinato.dashboard", "tests.dashboard.test_browser")),
    Stage(
        target="test-ray",
        rooms=("ostinato.loop.placement", "tests.loop.placement"),
        arguments=f"tests/loop {AGAIN}",
    ),
    Stage(
        target="real-short",
        rooms=("ostinato.model", "ostinato.engine.embedded", "ostinato.train", "tests.real"),
        arguments=AGAIN,
    ),
    Stage(
        target="test-sandboxes",
        rooms=("ostinato.sandbox", "tests.sandbox", "tests.hacks", "tests.escapes"),
        arguments=AGAIN,
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Run the stages one after the other, up to the first that fails; print what each took."""
    parser = argparse.ArgumentParser(description="The stages of the check.")
    parser.add_argument("kind", choices=["change", "full"], help="what a change can break, or everything")
    parser.add_argument("--list", action="store_true", help="print the stages that would run, and run none")
    options = parser.parse_args(arguments)
    stages, why = chosen(options.kind)
    print(why, flush=True)
    if options.list:
        print("\n".join(stage.target for stage in stages))
        return 0
    took: dict[str, float] = {}
    for stage in stages:
        print(f"::: make {stage.target}", flush=True)
        began = time.monotonic()
        command = ["make", "--no-print-directory", stage.target]
        command += [f"ARGS={stage.arguments}"] if stage.arguments else []
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        took[stage.target] = time.monotonic() - began
        if status:
            print(f"{_table(took)}\nmake {stage.target} failed", flush=True)
            return 1
    print(_table(took), flush=True)
    if options.kind == "full":
        PASSED.write_text(f"{_git('rev-parse', 'HEAD')}\n")
        print(f"every stage passed: commit {PASSED.relative_to(ROOT)}, from which later changes are counted")
    return 0


def chosen(kind: str) -> tuple[list[Stage], str]:
    """Return the stages of a check, and the reason for them as a sentence."""
    stages = [stage for stage in STAGES if stage.only in {"", kind}]
    if kind == "full":
        return stages, "every stage"
    base = PASSED.read_text().strip() if PASSED.exists() else ""
    if not base or not _is_known(base):
        return stages, "every stage: no commit is known on which all of them passed"
    changed = _git("diff", "--name-only", "--no-renames", base).splitlines()
    changed += _git("ls-files", "--others", "--exclude-standard").splitlines()
    stages = [stage for stage in stages if stage.always or stage.is_touched_by(changed)]
    return stages, f"the stages that {len(changed)} files changed since {base[:12]} can break"


def _is_data(name: str) -> bool:
    return name.startswith(("src/", "tests/", "lab/")) and not name.endswith((".py", ".md"))


def _owner(name: str) -> str:
    folder = (ROOT / name).parent
    while folder != ROOT and next(folder.glob("*.py"), None) is None:
        folder = folder.parent
    return str(folder.relative_to(ROOT))


def _is_known(commit: str) -> bool:
    """Return whether this clone has a commit; a shallow one may not."""
    command = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(command, cwd=ROOT, check=False, stderr=subprocess.DEVNULL).returncode == 0


def _git(*words: str) -> str:
    command = ["git", *words]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _table(took: dict[str, float]) -> str:
    rows = [f"{seconds:7.0f} s  make {target}" for target, seconds in took.items()]
    return "\n".join([*rows, f"{sum(took.values()):7.0f} s  in all"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
