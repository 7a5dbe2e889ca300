"""Mining of several repositories at once: read, try, write, validate; each refusal is named and counted."""

import asyncio
import json
import shutil
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ostinato.assertions import undecided_on_disk
from ostinato.mining.archive import read_tree
from ostinato.mining.base import MiningError, SourceTree, Tally, repository_name
from ostinato.mining.history import History
from ostinato.mining.past import mine_commit
from ostinato.mining.present import mine_present
from ostinato.mining.write import Draft, write_task
from ostinato.sandbox.base import Backend
from ostinato.sandbox.exam.guarded.runners.base import FOLDER
from ostinato.sandbox.exam.verifier import Verification, Verifier
from ostinato.tasks.base import TaskError
from ostinato.types import Task

Detail = Literal["mixed", "symptom", "terse", "plain", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningConfig:
    """The settings of mining."""

    per_repository: int = 15
    """The tasks that one repository may give."""
    detail: Detail = "mixed"
    """The level of the instructions; `mixed` takes each in turn."""
    seed: int = 1
    at_once: int = 2
    """Repositories that are mined at the same time."""
    commits: int = 200
    """The newest commits that are looked at in a repository with a history; 0 looks at none."""
    name: str = ""
    """The name of the repository, where that of its folder or archive is not it."""


class Miner:
    """The mining of repositories into one folder of tasks.

    A task is written to a part folder and renamed when it is whole; one that its verifier does not tell from
    an empty solution, or whose reference does not pass, is removed and counted.
    """

    def __init__(
        self,
        backend: Backend,
        out: Path,
        config: MiningConfig,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._backend = backend
        self._verifier = Verifier(backend)
        self._out = out
        self._config = config
        self._say = say
        self.tally = Tally()
        self._names: dict[str, Path] = {}

    async def mine(self, paths: Sequence[Path]) -> list[Task]:
        """Mine every archive or directory; one that cannot be used costs only itself."""
        self._out.mkdir(parents=True, exist_ok=True)
        slots = asyncio.Semaphore(self._config.at_once)

        async def one(path: Path) -> list[Task]:
            async with slots:
                self.tally.count("repositories read")
                try:
                    tasks = await self._mine(path)
                except Exception as error:  # one odd repository never ends the mining of the others
                    self._leave_out(_named(path.name, error))
                    return []
                self.tally.count("repositories with tasks", bool(tasks))
                self._say(f"{path.name}: {len(tasks)} tasks")
                return tasks

        found = await asyncio.gather(*(one(path) for path in paths))
        return [task for tasks in found for task in tasks]

    async def _mine(self, path: Path) -> list[Task]:
        """Mine one repository: the committed files of a git repository, else those that lie there."""
        config = self._config
        if not (path / ".git").exists():
            tree = await asyncio.to_thread(read_tree, path)
            tree = replace(tree, name=repository_name(config.name)) if config.name else tree
            self._claim(tree, path)
            return await self._mine_present(tree)
        with tempfile.TemporaryDirectory(prefix="history-") as folder:
            history = await asyncio.to_thread(History, path, Path(folder), config.name)
            tree = await asyncio.to_thread(history.head)
            self._claim(tree, path)
            tasks = await self._mine_past(history)
        try:
            return [*tasks, *await self._mine_present(tree)]
        except Exception as error:  # the tasks of the history stay
            self._leave_out(_named(tree.name, error))
            return tasks

    async def _mine_present(self, tree: SourceTree) -> list[Task]:
        config = self._config
        drafts = await mine_present(
            self._backend,
            tree,
            wanted=config.per_repository,
            seed=config.seed,
            detail=config.detail,
            tally=self.tally,
        )
        written = [await self.validated(draft) for draft in drafts]
        return [task for task in written if task is not None]

    def _leave_out(self, error: MiningError) -> None:
        self.tally.refuse(error)
        self._say(f"left out: {error}")

    async def _mine_past(self, history: History) -> list[Task]:
        """Mine the history of a repository; a commit that cannot be used costs only itself."""
        config, tasks = self._config, list[Task]()
        for id in await asyncio.to_thread(history.commits, config.commits):
            self.tally.count("commits read")
            try:
                commit = await asyncio.to_thread(history.commit, id)
                draft = await mine_commit(self._backend, commit, detail=config.detail)
            except Exception as error:
                self._leave_out(_named(id[:9], error))
                continue
            self.tally.count("commits that tell before from after")
            if (task := await self.validated(draft)) is not None:
                tasks.append(task)
            if len(tasks) >= config.per_repository:
                break
        return tasks

    def _claim(self, tree: SourceTree, path: Path) -> None:
        """Refuse a second release of a repository, whose tasks would share their answers."""
        if tree.name in self._names:
            raise MiningError("second release", tree.name, f"{path} beside {self._names[tree.name]}")
        self._names[tree.name] = path

    async def validated(self, draft: Draft) -> Task | None:
        """Write a task and let its verifier tell before from after; return None for one that it does not."""
        try:
            task = await asyncio.to_thread(write_task, draft, self._out)
        except (OSError, ValueError, TaskError) as error:
            self.tally.count("tasks not written")
            self._say(f"{draft.tree.name}: {error}")
            return None
        empty = await self._verifier.verify(task, {})
        solved = await self._verifier.verify(task, dict(draft.solution))
        if reason := _unfit(empty, solved):
            self.tally.count(f"tasks refused: {reason.partition(':')[0]}")
            self._say(f"{task.id}: {reason}")
            await asyncio.to_thread(shutil.rmtree, task.directory)
            return None
        self.tally.count("tasks")
        weak = await asyncio.to_thread(undecided_on_disk, task.tests / FOLDER, task.repo, task.test_ids)
        if weak:
            self.tally.count("tasks with a test that the tested code decides")
            self._say(f"{task.id}: {weak[0]}")
        note = {
            "empty": dict(empty.outcomes),
            "solution": "passed",
            "grade": solved.grade.name.lower(),
            "undecided": list(weak),
        }
        await asyncio.to_thread(_note, task.directory / "evidence.json", note)
        return task


def _named(where: str, error: Exception) -> MiningError:
    """Return the reason why something was left out; a failure that no reason was made for says its place."""
    if isinstance(error, MiningError):
        return error
    places = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(places[-1].filename).name}:{places[-1].lineno})" if places else ""
    return MiningError("not expected", where, f"{type(error).__name__}: {error}{place}"[:300])


def _unfit(empty: Verification, solved: Verification) -> str:
    """Return why a task does not tell before from after; empty when it does."""
    if empty.void or solved.void:
        return f"void: {empty.void or solved.void}"
    if empty.passed:
        return "empty passes"
    return "" if solved.passed else "solution fails"


def _note(path: Path, validation: Mapping[str, object]) -> None:
    """Add the verifier's outcomes to the evidence."""
    evidence = json.loads(path.read_text(encoding="utf-8"))
    evidence["validation"] = validation
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(evidence, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    part.rename(path)
