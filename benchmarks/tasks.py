"""Mining of real packages: yield by stage, flakiness, and the guarded verifier beside plain pytest.

    python -m benchmarks.tasks [--packages toolz boltons …] [--archives DIR] [--out DIR] [--json]

Without `--archives`, pip downloads the source archives of the packages by name. `--mined DIR` checks the
tasks of an earlier run instead of mining again. Every reference solution and every empty one was verified
when its task was mined; both are verified five times more for a random hundred tasks, of which one is flaky
when any outcome of any test differs. For the ratio a random forty reference solutions are verified without a
second order, each in turn with a plain `python -m pytest` on the same tree, tests and kind of sandbox, the
copy of the tree and the sandbox's start included; the ratio is the median of the pairs. A task that plain
pytest cannot run has no pair and is counted: its tests import the installed package instead of the tree, or
cannot be named by their ids. Exit status 1 when a solution fails, an empty one passes, or a task is flaky.
"""

import argparse
import asyncio
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.measure import Cpu, ratios
from ostinato.mining.mine import Miner, MiningConfig
from ostinato.mining.trials import LIMITS
from ostinato.sandbox.base import Backend, Spec
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.exam.guarded.runners.base import hidden_files
from ostinato.sandbox.exam.guarded.suite import Suite
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.tasks.source import FolderSource
from ostinato.types import Task

PACKAGES = (
    "addict anytree asttokens attrs boltons cachetools charset-normalizer click cssselect deepmerge",
    "dpath face ftfy funcy glom humanize hyperlink idna inflection intervaltree isodate itsdangerous",
    "jmespath jsondiff lark markdown marshmallow mistune more-itertools natsort num2words ordered-set",
    "packaging parse parso pathspec portion prettytable pyflakes pyparsing pyrsistent python-dotenv",
    "python-slugify rfc3986 schedule schema semantic-version simplejson sqlparse tabulate termcolor",
    "text-unidecode tinycss2 tinydb tomlkit unidiff uritemplate validators webcolors whatthepatch",
    "xmltodict zipp",
)
"""Packages whose source archives carry tests."""
YIELD = "yield.json"
RUNS, SAMPLE, PAIRS, AT_ONCE = 5, 100, 40, 2
PLAIN = ("python", "-m", "pytest", "-q", "--tb=no", "-o", "addopts=")
"""No plugin is named, because a warm interpreter has no configuration ready for a call that names one."""


def download(packages: Sequence[str], folder: Path) -> list[Path]:
    """Return the source archives that pip finds; a package without one is named and left out."""
    for name in packages:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        done = subprocess.run(
            [*command, "--dest", str(folder), name], capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(f"{name}: no source archive: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return archives(folder)


def archives(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


async def mine(paths: Sequence[Path], out: Path, sandbox: str, per_repository: int) -> None:
    """Mine the archives and write the yield beside the tasks."""
    cpu = Cpu()
    before = cpu.seconds()
    backend = await choose_backend(sandbox)
    try:
        config = MiningConfig(per_repository=per_repository, commits=0)
        miner = Miner(backend, out, config, lambda line: print(line, file=sys.stderr, flush=True))
        await miner.mine(paths)
    finally:
        await backend.aclose()
    spent = cpu.seconds() - before
    cpu.leave()
    rows = {"stages": dict(miner.tally.stages), "refused": dict(miner.tally.refused)}
    (out / YIELD).write_text(json.dumps({**rows, "cpu_s": round(spent, 1)}))


def solution(task: Task) -> dict[str, bytes | None]:
    """Return the files of the reference solution: the patch, applied to a copy."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "repo"
        shutil.copytree(task.repo, copy)
        script = task.directory / "solution" / "solve.sh"
        subprocess.run(
            ["sh", str(script.resolve())], env={"REPO": str(copy), "PATH": "/usr/bin:/bin"}, check=True
        )
        names = subprocess.run(
            ["git", "status", "--porcelain", "-z", "--untracked-files=all"],
            cwd=copy,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")[:-1]
        return {name[3:]: (copy / name[3:]).read_bytes() for name in names}


async def check(backend: Backend, tasks: Sequence[Task], rng: Random) -> dict[str, Any]:
    """Verify both solutions of a sample again and again, and count what was ever wrong with any task."""
    verifier = Verifier(backend, variations=0)
    slots = asyncio.Semaphore(AT_ONCE)

    async def outcomes(task: Task) -> list[tuple[bool, bool, str]]:
        async with slots:
            solved, found = solution(task), []
            for _ in range(RUNS):
                yes, no = [await verifier.verify(task, changes) for changes in (solved, {})]
                seen = json.dumps([sorted(each.outcomes.items()) for each in (yes, no)])
                found.append((yes.passed, not no.passed and no.void is None, seen))
            return found

    sample = rng.sample(tasks, min(SAMPLE, len(tasks)))
    runs = dict(zip([task.id for task in sample], await asyncio.gather(*map(outcomes, sample)), strict=True))
    mined = {task.id: validation(task) for task in tasks}
    passed = [all([mined[id][0], *(run[0] for run in runs.get(id, ()))]) for id in mined]
    failed = [all([mined[id][1], *(run[1] for run in runs.get(id, ()))]) for id in mined]
    flaky = [id for id, found in runs.items() if len({seen for *_, seen in found}) > 1]
    return {
        "solutions_pass": sum(passed),
        "empty_fail": sum(failed),
        "flaky": len(flaky),
        "sampled": len(sample),
        "flaky_tasks": flaky,
    }


def validation(task: Task) -> tuple[bool, bool]:
    """Return whether the solution passed and the empty one failed when the task was mined."""
    kept = json.loads((task.directory / "evidence.json").read_text())["validation"]
    return kept["solution"] == "passed", not set(kept["empty"].values()) <= {"passed"}


async def compare(backend: Backend, tasks: Sequence[Task], rng: Random) -> dict[str, Any]:
    """Time the guarded verifier and plain pytest in turns."""
    verifier = Verifier(backend, variations=0)
    walls: dict[str, list[float]] = {"guarded": [], "plain": []}
    without_pair = 0
    for task in rng.sample(tasks, min(PAIRS, len(tasks))):
        changes = solution(task)
        began = time.perf_counter()
        assert (await verifier.verify(task, changes)).passed, task.id
        between = time.perf_counter()
        passed = await plain(backend, task, changes)
        ended = time.perf_counter()
        if not passed:
            without_pair += 1
            continue
        walls["guarded"].append(between - began)
        walls["plain"].append(ended - between)
    figure = ratios(walls["guarded"], walls["plain"])
    return {
        "guarded_ratio_vs_pytest": round(figure.value, 3),
        "ratio_interval": [round(figure.low, 3), round(figure.high, 3)],
        "pairs": len(walls["plain"]),
        "without_pair": without_pair,
        "verdicts_per_s": round(len(walls["guarded"]) / sum(walls["guarded"]), 2),
    }


async def plain(backend: Backend, task: Task, changes: dict[str, bytes | None]) -> bool:
    """Run the same tests on the same tree with plain pytest, and return whether all passed."""
    with tempfile.TemporaryDirectory() as folder:
        repo = Path(folder) / "repo"
        await asyncio.to_thread(lay_out, task, changes, repo)
        sandbox = await backend.create(Spec(repo=repo, limits=LIMITS))
        try:
            suite = Suite.of(task)
            assert suite is not None
            done = await sandbox.exec(shlex.join([*PLAIN, *suite.arguments, "@.ids"]))
        finally:
            await sandbox.destroy()
    return done.exit_code == 0


def lay_out(task: Task, changes: dict[str, bytes | None], repo: Path) -> None:
    shutil.copytree(task.repo, repo)
    for path, data in changes.items():
        (repo / path).write_bytes(data or b"")
    for path, source in hidden_files(task.tests).items():
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, repo / path)
    (repo / ".ids").write_text("".join(f"{test}\n" for test in task.test_ids))


async def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    out: Path = options.mined or options.out or folder / "tasks"
    if options.mined is None:
        paths = archives(options.archives) if options.archives else download(options.packages, folder)
        await mine(paths, out, options.sandbox, options.per_repository)
    found = json.loads((out / YIELD).read_text())
    tasks = sorted(FolderSource(out).tasks, key=lambda task: task.id)
    backend = await choose_backend(options.sandbox)
    try:
        checked = await check(backend, tasks, Random(1))
        print(json.dumps(checked), file=sys.stderr, flush=True)
        compared = await compare(backend, tasks, Random(2))
    finally:
        await backend.aclose()
    return {
        "repositories": len({task.metadata["cluster"] for task in tasks}),
        "tasks": len(tasks),
        "cpu_minutes": round(found["cpu_s"] / 60, 1),
        "tasks_per_cpu_minute": round(60 * found["stages"]["tasks"] / found["cpu_s"], 1),
        **checked,
        **compared,
        "yield": found["stages"],
        "refused": found["refused"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--packages", nargs="+", default=" ".join(PACKAGES).split())
    parser.add_argument("--archives", type=Path, help="a folder of source archives, instead of downloading")
    parser.add_argument("--out", type=Path, help="keep the tasks here")
    parser.add_argument("--mined", type=Path, help="check the tasks of an earlier run")
    parser.add_argument("--per-repository", type=int, default=12)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(run(options, Path(folder)))
    if options.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:28} {value}")
    tasks = report["tasks"]
    good = report["solutions_pass"] == report["empty_fail"] == tasks and report["flaky"] == 0
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
