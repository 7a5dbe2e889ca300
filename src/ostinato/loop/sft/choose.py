"""The choice of what is learnt from: solutions that can be shown, and sessions that may be imitated.

Whatever is left out is counted with its reason.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random

from ostinato.bench.fence import MOST, task_text
from ostinato.bench.suite import MANIFEST
from ostinato.data.fence import Gram, grams
from ostinato.harness.profiles.profile import PROFILES, by_hash
from ostinato.loop.run import START, Run
from ostinato.loop.sft.config import DemonstrationsConfig
from ostinato.loop.stages.dialect import Wording
from ostinato.model.families import Renderer
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.store.config import is_there, record_of
from ostinato.tasks.source import TRAIN, FolderSource
from ostinato.tasks.teaching.demonstrate import demonstrator
from ostinato.train.samples import UntrainableError, demonstrated
from ostinato.types import Ending, Session, Signal, SignalKind, Source, Task, Turn, TurnKind

AT_ONCE = 200
"""The sessions whose tokens are in memory together."""
SHOWN_CALLS: Mapping[str, Mapping[str, str]] = {
    "read": {"path": "a"},
    "edit": {"path": "a", "old_string": "a", "new_string": "b"},
    "bash": {"command": "a"},
}
"""The calls with which a reference solution is shown."""


class SftError(Exception):
    """There is nothing to learn from, or not as asked; the message says what, where and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedTasks:
    """The tasks that are measured with: nothing is learnt from what is one of them, or holds one.

    The rule is that of `ostinato bench refresh`. That of corpora, some runs in common, would take all tasks
    of one make for the same, since the same program tests them.

    >>> FencedTasks.around([]).holds("anything")
    False
    """

    names: frozenset[str]
    """Their ids and keys."""
    runs: tuple[frozenset[Gram], ...]
    """The runs of thirteen words of each."""

    @classmethod
    def around(cls, folders: Iterable[Path]) -> "FencedTasks":
        tasks = [task for folder in folders for task in FolderSource(folder).tasks]
        names = (name for task in tasks for name in (task.id, task.key))
        runs = (frozenset(grams(task_text(task))) for task in tasks)
        return cls(names=frozenset(names), runs=tuple(each for each in runs if each))

    def holds(self, text: str) -> bool:
        """Return whether four fifths of a task's runs stand in a text."""
        seen = set(grams(text)) if self.runs else set()
        return any(len(each & seen) >= MOST * len(each) for each in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSessions:
    """The sessions of one source that are learnt from and held out, and the reasons why others are not.

    >>> ChosenSessions(record="runs/team/store.db", train=("s1",), held_out=(), left_out={}).train
    ('s1',)
    """

    record: str
    train: tuple[str, ...]
    held_out: tuple[str, ...]
    left_out: Mapping[str, int]


def able(profiles: Sequence[str], left_out: Counter[str], tasks: int) -> list[str]:
    """Return the profiles with every call that a solution is shown with; count what the others would show."""
    found = []
    for name in profiles:
        wording, lacking = Wording(PROFILES[name]), list[str]()
        for call, arguments in SHOWN_CALLS.items():
            try:
                wording.call(call, arguments)
            except KeyError:
                lacking.append(call)
        if lacking:
            left_out[f"the profile {name} has no call to {', '.join(lacking)}"] += tasks
        else:
            found.append(name)
    return found


def showable(
    name: str, source: DemonstrationsConfig, fence: FencedTasks, left_out: Counter[str]
) -> list[Task]:
    """Return the tasks whose solutions may be shown. Raises SftError, SourceError and TaskError."""
    assert source.tasks is not None
    if (source.tasks / MANIFEST).exists():
        raise SftError(
            f"sources.{name}: {source.tasks} is a sealed suite, which is measured with: name other tasks"
        )
    found = []
    for task in FolderSource(source.tasks, foreign=source.foreign).tasks:
        if task.split != TRAIN:
            left_out[f"tasks of the split {task.split}, which are not for learning"] += 1
        elif task.key in fence.names or fence.holds(task_text(task)):
            left_out["tasks of the fence"] += 1
        elif demonstrator(task, Random(0)) is None:
            left_out["tasks whose solution is no patch that the edit tool can make"] += 1
        else:
            found.append(task)
    return found


def record_meant(name: str, source: DemonstrationsConfig) -> tuple[str, Path]:
    """Return the record of a source, and the checkpoint that it was written with. Raises SftError."""
    folder = Path(source.record)
    place = record_of(folder) if folder.is_dir() else source.record
    checkpoint = source.checkpoint or Run(directory=folder).checkpoint(START)
    if not is_there(place):
        raise SftError(f"sources.{name}: {source.record} holds no record")
    if not (checkpoint / "tokenizer.json").is_file():
        raise SftError(
            f"sources.{name}: {checkpoint} has no tokenizer.json: name by `checkpoint` the model that the "
            "record was written with"
        )
    return place, checkpoint


class Chooser:
    """The choice among recorded sessions, for a start of `context` positions that `renderer` writes for."""

    def __init__(
        self,
        renderer: Renderer,
        context: int,
        profiles: Sequence[str],
        fence: FencedTasks,
        *,
        held_out: float,
        seed: int,
    ) -> None:
        self._renderer, self._context, self._fence = renderer, context, fence
        self._profiles = {PROFILES[name].hash for name in profiles}
        self._calls = {offer.name for name in profiles for offer in PROFILES[name].offers}
        self._share, self._seed = held_out, seed
        self._out, self._learnt = set[str](), set[str]()

    def of_record(self, name: str, source: DemonstrationsConfig) -> ChosenSessions:
        """Return the sessions of a record that are not its own measurements. Raises SftError."""
        place, checkpoint = record_meant(name, source)
        if Tokenizer.load(checkpoint).digest != self._renderer.tokenizer.digest:
            raise SftError(
                f"sources.{name}: {source.record} was written with the tokenizer of {checkpoint}, and the "
                "start has another: its tokens would be other words"
            )
        with closing(Store.open(place)) as store:
            wanted = [
                each for kind in Source if kind is not Source.BENCH for each in store.sessions(source=kind)
            ]
            return self._chosen(store, place, wanted, source.least_reward, Counter())

    def of_lessons(
        self, store: Store, place: str, tasks: Sequence[Task], left_out: Counter[str]
    ) -> ChosenSessions:
        """Return the sessions in which the solutions of `tasks` were shown."""
        ids = {task.id for task in tasks}
        wanted = [each for each in store.sessions(source=Source.TEACHER) if each.task_id in ids]
        return self._chosen(store, place, wanted, 0.0, left_out)

    def _chosen(
        self, store: Store, place: str, sessions: Sequence[Session], least: float, left_out: Counter[str]
    ) -> ChosenSessions:
        kept = list[Session]()
        consented = {each.id for each in store.accounts.may_train_on(sessions)}
        for some in _in_parts(sessions):
            ids = [each.id for each in some]
            turns, signals = store.turns_of(ids), store.signals_of(ids)
            for each in some:
                why = "" if each.id in consented else "without consent"
                why = why or self._unsolved(store, each, signals.get(each.id, []), least)
                why = why or self._unfit(each, turns.get(each.id, []))
                if why:
                    left_out[f"sessions {why}"] += 1
                else:
                    kept.append(each)
        groups = {each.id: each.task_id or each.id for each in kept}
        out = self._apart(set(groups.values()))
        return ChosenSessions(
            record=place,
            train=tuple(id for id, group in groups.items() if group not in out),
            held_out=tuple(id for id, group in groups.items() if group in out),
            left_out=dict(left_out),
        )

    def _unsolved(self, store: Store, session: Session, signals: Sequence[Signal], least: float) -> str:
        """Return why a session is no success: by its tests, a person's reward, or the end of an import."""
        if session.ending is not Ending.FINISHED:
            return "that did not finish"
        if session.source is Source.IMPORTED:
            return ""
        if session.source is Source.LIVE:
            rewards = store.rewards(session.id)
            low = bool(rewards) and rewards[-1].total < least
            return f"with a reward below {least:g}" if low else "" if rewards else "without a reward yet"
        facts = {each.kind: each.value for each in signals}
        if SignalKind.HIDDEN_TESTS not in facts:
            return "without a verdict"
        solved = facts[SignalKind.HIDDEN_TESTS] == 1.0 and not facts.get(SignalKind.TAMPERED)
        return "" if solved else "that did not solve their task"

    def _unfit(self, session: Session, turns: Sequence[Turn]) -> str:
        """Return why a session's tokens cannot be imitated as they are."""
        try:
            rows = demonstrated(turns)
        except UntrainableError as error:
            return f"that cannot be trained: {error.reason}"
        if max(len(row.ids) for row in rows) > self._context:
            return f"longer than the {self._context} positions of the start"
        texts = (self._renderer.tokenizer.decode(row.ids) for row in rows)
        if session.task_id in self._fence.names or any(map(self._fence.holds, texts)):
            return "that show a task of the fence"
        said = [turn.completion.ids for turn in turns if turn.kind is not TurnKind.SIDE]
        parsed = [self._renderer.parse(ids) for ids in said]
        if any(each.broken for each in parsed):
            return "with a call that cannot be read"
        names = {call.name for each in parsed for call in each.tool_calls}
        known = by_hash(session.harness)
        if (known is None or known.hash not in self._profiles) and names - self._calls:
            return f"that call {', '.join(sorted(names - self._calls))}, which no profile here has"
        return ""

    def _apart(self, groups: set[str]) -> set[str]:
        """Return the groups to hold out, which the seed draws: of two or more at least one, of one none.

        A group that one source holds out, no other learns from.
        """
        out = groups & self._out
        free = groups - self._out - self._learnt
        drawn = sorted(free, key=lambda each: sha256(f"{self._seed}/{each}".encode()).digest())
        wanted = max(round(self._share * len(groups)), int(self._share > 0 and len(groups) > 1)) - len(out)
        out |= set(drawn[: max(0, min(wanted, len(groups) - 1))])
        self._out |= out
        self._learnt |= groups - out
        return out


def _in_parts(sessions: Sequence[Session]) -> Iterator[Sequence[Session]]:
    for start in range(0, len(sessions), AT_ONCE):
        yield sessions[start : start + AT_ONCE]
