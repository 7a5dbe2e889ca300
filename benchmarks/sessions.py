"""Tasks from recorded sessions: how many, why the others were left out, and what the tasks are worth.

    python -m benchmarks.sessions [--mined DIR | --packages toolz …] [--sessions 220] [--json]

Simulated developers work in clones of mined repositories, each with several faults at once, as repositories
have them. Each asks `ostinato code` for one of them in the words of a mined task; the harness, the working
tree, the checkpoints, the gateway process and its record are real, and the model behind the engine's HTTP is
a script. What the developer does then is one of `KINDS`: commits with tests or without, corrects the agent
first, asks again, reverts, commits what does not work, only asks, or agreed to nothing. Then `ostinato bench
mine` is run on every clone.

- `yield`: sessions read, sessions that tell before from after, tasks; `refused`: the reasons, counted.
- `by_kind`: for each kind of developer how many of their sessions became tasks.
- `verified`: the share of tasks that tell before from after, checked a second time by nothing of ours: the
  task's own `tests/test.sh` (plain pytest) in a fresh sandbox, on the repository as it lies there, which must
  fail, and after `solution/solve.sh`, which must pass. Wilson's interval, 95 %.

Exit status 1 when less than 95 % are verified, or a session without consent became a task.
"""

import argparse
import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console

from benchmarks.measure import Cpu, Run, table
from benchmarks.tasks import download, mine, solution
from ostinato.deploy.statistics import wilson
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.harness.frontends.code import CodeRequest, code
from ostinato.harness.profiles.prompt import SYSTEM
from ostinato.harness.session_log import Sessions
from ostinato.harness.tools.definitions import TOOLS
from ostinato.harness.workspace.workbench import Options
from ostinato.mining.mine import Miner, MiningConfig
from ostinato.mining.present import without
from ostinato.mining.sessions import SessionMiner
from ostinato.mining.trials import LIMITS
from ostinato.model.families import HermesRenderer, skeletons
from ostinato.model.tokenizer import Tokenizer
from ostinato.sandbox.base import Backend, Spec
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.exam.guarded.runners.base import hidden_files
from ostinato.store import Store
from ostinato.store.accounts import hash_key
from ostinato.tasks.source import FolderSource
from ostinato.types import Arm, Task

PACKAGES = (
    *("addict", "anytree", "boltons", "frozendict", "humanize"),
    *("inflection", "intervaltree", "jmespath", "natsort", "schedule"),
)
PER_CLONE = 4
CORRECTS = "corrects, then commits with tests"
KEPT = {"commits with tests": 8, "commits alone": 2, CORRECTS: 2, "asks again": 1}
"""The kinds of developers whose sessions may become tasks, with weights."""
LEFT = {"reverts": 3, "commits what fails": 2, "only asks": 2, "agrees to nothing": 2, "takes it back": 1}
"""The kinds whose sessions must not."""
KINDS = (*KEPT, *LEFT)
ENOUGH = 0.95
LONGEST = 3_000
"""The characters of an edit that a reply of `ostinato code` surely holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One fault of a repository, and what its developer says about it.

    >>> Work(id="a", repository="toolz", asks="f is off", path="a.py", wrong="x + 1", right="x + 2",
    ...      hidden=(), suite={}).path
    'a.py'
    """

    id: str
    repository: str
    asks: str
    path: str
    wrong: str
    right: str
    """Lines that occur once in the file with the fault, and once in the file without it."""
    hidden: tuple[str, ...]
    """The test functions that its developer will have written by the end."""
    suite: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """A developer's working tree, whose faults are `works`."""

    root: Path
    works: tuple[Work, ...]


# ---------------------------------------------------------------- repositories with faults


def work_of(task: Task) -> Work | None:
    """Return the fault of a mined task; None for one that is no single place of one file, or a long one."""
    evidence = json.loads((task.directory / "evidence.json").read_text())
    fixed = solution(task)
    if evidence["source"]["from"] != "present" or len(fixed) != 1:
        return None
    ((path, data),) = fixed.items()
    wrong, right = _place((task.repo / path).read_text(), (data or b"").decode())
    if len(wrong) + len(right) > LONGEST:
        return None
    return Work(
        id=task.id,
        repository=str(task.metadata["cluster"]),
        asks=task.instruction.strip(),
        path=path,
        wrong=wrong,
        right=right,
        hidden=tuple(evidence["hidden_tests"]),
        suite={path: file.read_text() for path, file in hidden_files(task.tests).items()},
    )


def _place(wrong: str, right: str) -> tuple[str, str]:
    """Return the lines that differ, with as many lines around them as make both occur once."""
    old, new = wrong.splitlines(keepends=True), right.splitlines(keepends=True)
    blocks = [b for b in SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if b[0] != "equal"]
    i1, i2, j1, j2 = blocks[0][1], blocks[-1][2], blocks[0][3], blocks[-1][4]
    for around in range(1, len(old) + len(new)):
        top = min(around, i1)
        one = "".join(old[i1 - top : i2 + around])
        other = "".join(new[j1 - top : j2 + around])
        if wrong.count(one) == 1 and right.count(other) == 1:
            return one, other
    return wrong, right


def make_clone(root: Path, task: Task, works: Sequence[Work]) -> Clone:
    """Write the repository of `task` without its own fault, with those of `works` that go together."""
    files = _files(task.repo)
    files |= {path: data or b"" for path, data in solution(task).items()}
    for work in works:
        files |= {path: text.encode() for path, text in work.suite.items()}
    taken = []
    for work in works:
        text = files[work.path].decode()
        faulty = text.replace(work.right, work.wrong)
        if text.count(work.right) == faulty.count(work.wrong) == 1:
            files[work.path] = faulty.encode()
            taken.append(work)
    hidden = [name for work in taken for name in work.hidden]
    for path in {name.split("::")[0] for name in hidden}:
        files[path] = without(files[path].decode(), path, hidden)[0].encode()
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    git(root, "init", "-q")
    commit(root)
    return Clone(root=root, works=tuple(taken))


def _files(repo: Path) -> dict[str, bytes]:
    return {
        path.relative_to(repo).as_posix(): path.read_bytes()
        for path in sorted(repo.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(repo).parts
    }


def git(root: Path, *arguments: str) -> None:
    command = ["git", "-C", str(root), "-c", "user.name=dev", "-c", "user.email=dev@localhost", *arguments]
    subprocess.run(command, check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "work")


# ---------------------------------------------------------------- sessions


class Office:
    """Developers, one session at a time: the script is what the model says next."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.sessions = Sessions(directory=folder / "state" / "sessions")
        self._store = store
        self._script: deque[str] = deque()
        self._url = ""

    @asynccontextmanager
    async def open(self, folder: Path, texts: Iterable[str]) -> AsyncIterator[None]:
        """Serve the script as an engine, and start a gateway process before it."""
        tokenizer = Tokenizer.train(texts, 2000, skeletons(SYSTEM, TOOLS))
        tokenizer.save(folder / "checkpoint")
        stop = HermesRenderer(tokenizer).stop_ids[0]

        async def policy(_: object) -> tuple[int, ...]:
            return (*tokenizer.encode(self._script.popleft()), stop)

        engine = await serve_scripted(ScriptedEngine(policy))
        self._store.set_arms([Arm(name="main", version=1, share=1.0, engines=(engine.url,))])
        words = ["--store", str(folder / "store.db"), "--checkpoint", str(folder / "checkpoint")]
        command = [sys.executable, "-m", "ostinato.gateway.server", *words]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        try:
            self._url = f"http://127.0.0.1:{json.loads(await process.stdout.readline())['port']}"
            yield
        finally:
            process.kill()
            await process.wait()
            await engine.close()

    async def session(self, clone: Clone, work: Work, kind: str, number: int) -> str:
        """Let one developer work on one fault; return the id of the session."""
        user = f"dev-{number}"
        self._store.add_key(hash_key(user), user)
        self._store.accounts.set_consent(user=user, granted=kind != "agrees to nothing", by=user)
        before = {path.stem for path in self.sessions.directory.glob("*.jsonl")}
        fails = kind in {CORRECTS, "commits what fails", "asks again"}
        if kind == "only asks":
            await self._ask(clone, user, work.asks, "It looks right to me.")
        else:
            await self._ask(clone, user, work.asks, *_replies(work, fails=fails))
        if kind == "asks again":
            await self._ask(clone, user, "still wrong", *_replies(work, noted=True), resume="")
        self._leave(clone.root, work, kind, user)
        (id,) = {path.stem for path in self.sessions.directory.glob("*.jsonl")} - before
        await asyncio.sleep(1.0)  # a commit's clock has whole seconds, and people take longer than one
        return id

    async def _ask(
        self, clone: Clone, key: str, prompt: str, *replies: str, resume: str | None = None
    ) -> None:
        self._script.extend(replies)
        options = Options(directory=clone.root, url=self._url, key=key, sessions=self.sessions)
        screen = io.StringIO()
        request = CodeRequest(prompt=prompt, plain=True, resume=resume)
        status = await code(request, options, Console(file=screen, width=100))
        assert status == 0 and not self._script, screen.getvalue()

    def _leave(self, root: Path, work: Work, kind: str, user: str) -> None:
        """Do what a developer of this kind does when the agent has ended."""
        if kind == "reverts":
            git(root, "checkout", "-q", "--", work.path)
        if kind == CORRECTS:
            text = (root / work.path).read_text()
            (root / work.path).write_text(text.replace(_noted(work.wrong), work.right))
        if kind in {"commits with tests", CORRECTS, "asks again"}:
            for path, text in work.suite.items():
                (root / path).write_text(text)
        if kind not in {"reverts", "only asks"}:
            commit(root)
        if kind == "takes it back":
            self._store.accounts.set_consent(user=user, granted=False, by=user)


def _replies(work: Work, *, fails: bool = False, noted: bool = False) -> list[str]:
    """Return what the model says: it looks, edits, and ends; one that fails only leaves a remark."""
    old = _noted(work.wrong) if noted else work.wrong
    new = _noted(work.wrong) if fails else work.right
    look = _call("read", path=work.path, limit=20)
    return [look, _call("edit", path=work.path, old_string=old, new_string=new), "I corrected it."]


def _noted(text: str) -> str:
    return text.removesuffix("\n") + "  # checked\n"


def _call(name: str, **arguments: object) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


# ---------------------------------------------------------------- the whole path


def planned(tasks: Sequence[Task], folder: Path, sessions: int, rng: Random) -> list[tuple[Clone, Work, str]]:
    """Return clones with their faults, and the kind of developer of each."""
    by: dict[str, list[tuple[Task, Work]]] = {}
    for task in tasks:
        if (work := work_of(task)) is not None:
            by.setdefault(work.repository, []).append((task, work))
    found: list[tuple[Clone, Work, str]] = []
    for kinds in (KEPT, LEFT):
        for pairs in by.values():
            rng.shuffle(pairs)
            left = [work for _, work in pairs]
            while left and len(found) < sessions:
                root = folder / f"clone-{len(found)}" / pairs[0][1].repository
                clone = make_clone(root, pairs[0][0], left[:PER_CLONE])
                left = [work for work in left if work not in clone.works] if clone.works else left[1:]
                drawn = rng.choices(list(kinds), list(kinds.values()), k=len(clone.works))
                found += [(clone, work, kind) for work, kind in zip(clone.works, drawn, strict=True)]
    return found[:sessions]


async def verified(backend: Backend, task: Task) -> bool:
    """Return whether the task's own script fails on the repository and passes on its solution."""
    rewards = []
    for solve in ("", "REPO={repo} sh solution/solve.sh && "):
        with tempfile.TemporaryDirectory() as folder:
            repo = Path(folder) / "repo"
            shutil.copytree(task.repo, repo)
            for part in ("tests", "solution"):
                shutil.copytree(task.directory / part, repo / ".task" / part)
            sandbox = await backend.create(Spec(repo=repo, limits=LIMITS))
            try:
                go = solve.format(repo='"$here"').replace("sh solution", "sh .task/solution")
                run = 'REPO="$here" LOGS="$here/.logs" sh .task/tests/test.sh; cat .logs/reward.txt'
                done = await sandbox.exec(f"here=$(pwd) && export here && {go}{run}")
            finally:
                await sandbox.destroy()
        rewards.append(done.output.strip()[-1:])
    return rewards == ["0", "1"]


async def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    tasks_at: Path = options.mined or folder / "tasks"
    if options.mined is None:
        (folder / "archives").mkdir()
        await mine(download(options.packages, folder / "archives"), tasks_at, options.sandbox, 12)
    tasks = sorted(FolderSource(tasks_at).tasks, key=lambda task: task.id)
    plan = planned(tasks, folder, options.sessions, Random(options.seed))
    store, cpu = Store.open(folder / "store.db"), Cpu()
    office, kinds, spent = Office(folder, store), dict[str, str](), dict[str, float]()
    async with office.open(folder, [work.asks + work.right for _, work, _ in plan]):
        for number, (clone, work, kind) in enumerate(plan):
            kinds[await office.session(clone, work, kind, number)] = kind
    spent["sessions"] = cpu.seconds()
    backend = await choose_backend(options.sandbox)
    try:
        (folder / "out").mkdir()
        miner = Miner(backend, folder / "out", MiningConfig())
        made = [
            task
            for root in dict.fromkeys(clone.root for clone, _, _ in plan)
            for task in await SessionMiner(backend, miner, store, office.sessions, root).mine()
        ]
        spent["mining"] = cpu.seconds() - spent["sessions"]
        again = [await verified(backend, task) for task in made]
    finally:
        await backend.aclose()
        cpu.leave()
        store.close()
    of = {task.id: kinds[_session_of(task)] for task in made}
    score = wilson(sum(again), len(again))
    return {
        "repositories": len({work.repository for _, work, _ in plan}),
        "sessions": len(plan),
        "tasks": len(made),
        "verified": {"rate": sum(again) / len(again), "low": score.low, "high": score.high, "n": len(again)},
        "yield": dict(miner.tally.stages),
        "refused": dict(miner.tally.refused),
        "by_kind": {
            kind: [list(of.values()).count(kind), list(kinds.values()).count(kind)] for kind in KINDS
        },
        "without_consent": sum(of[id] in {"agrees to nothing", "takes it back"} for id in of),
        "cpu_minutes": {name: round(each / 60, 1) for name, each in spent.items()},
    }


def _session_of(task: Task) -> str:
    return str(json.loads((task.directory / "evidence.json").read_text())["source"]["session"])


def main(opened: Run) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--packages", nargs="+", default=PACKAGES, help="archives to mine first")
    parser.add_argument("--mined", type=Path, help="a folder of mined tasks, instead of mining first")
    parser.add_argument("--sessions", type=int, default=220)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(run(options, Path(folder).resolve()))
    rows = [[kind, str(n), str(tasks)] for kind, (tasks, n) in found["by_kind"].items()]
    table(["developer", "sessions", "tasks"], rows)
    print()
    table(["left out", "sessions"], [[why, str(n)] for why, n in Counter(found["refused"]).most_common()])
    print(f"\nverified again: {found['verified']}\nCPU minutes: {found['cpu_minutes']}")
    opened.finish(found, as_json=options.json)
    return 0 if found["verified"]["rate"] >= ENOUGH and not found["without_consent"] else 1


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with Run("sessions", "rich") as running:
        sys.exit(main(running))
