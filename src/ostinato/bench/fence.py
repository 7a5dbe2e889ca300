"""The fence against contamination: how much of a task a model may have seen in training.

Two signs: the key of the task was shown to a model by a stage that learns (the ledger knows), and runs of
thirteen words of the task occur in the text of recorded sessions that were made to learn from. Thirteen is
the length of Brown et al., "Language models are few-shot learners" (2020), appendix C.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ostinato.data.fence import Gram, grams
from ostinato.store import Store
from ostinato.store.ledger.phases import Stage
from ostinato.store.ledger.prompt_queries import shown_by
from ostinato.store.pages import chosen_sessions
from ostinato.tasks.base import load_task
from ostinato.tasks.packed import PackedSource
from ostinato.tasks.source import task_folders
from ostinato.types import Source, Task

LEARNT = (Source.TEACHER, Source.PRACTICE, Source.LIVE, Source.IMPORTED)
"""The sources of sessions that training may read."""
AT_ONCE = 50
MOST = 0.8
"""The overlap from which a task counts as leaked. Two pebbles of one make share 0.64 of their text."""
Decode = Callable[[Sequence[int]], str]
"""Returns the text of token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """The signs that a task found its way into training.

    >>> Exposure(stage=None, overlap=0.02).leaked
    False
    """

    stage: Stage | None
    """The stage that showed the task's key to a model that learns; None when none did."""
    overlap: float | None
    """The share of the task's runs of thirteen words that occur in the text; None if it has fewer words."""

    @property
    def leaked(self) -> bool:
        return self.stage is not None or (self.overlap is not None and self.overlap >= MOST)


def exposures(store: Store, tasks: Sequence[Task], texts: Iterable[str]) -> dict[str, Exposure]:
    """Return the exposure of each task by its id; `texts` are what training may have read."""
    with store.database.read() as connection:
        stages = shown_by(connection, [task.key for task in tasks])
    shares = overlaps({task.id: task_text(task) for task in tasks}, texts)
    return {task.id: Exposure(stage=stages.get(task.key), overlap=shares[task.id]) for task in tasks}


def overlaps(tasks: Mapping[str, str], texts: Iterable[str]) -> dict[str, float | None]:
    """Return, for each task's text, the share of its runs of words that occur in one of `texts`.

    >>> overlaps({"a": " ".join("abcdefghijklmn")}, ["x " + " ".join("abcdefghijklm")])
    {'a': 0.5}
    """
    wanted = {id: set(grams(text)) for id, text in tasks.items()}
    missing = set().union(*wanted.values()) if wanted else set()
    seen: set[Gram] = set()
    for text in texts:
        seen |= missing.intersection(grams(text))
        missing -= seen
    return {id: len(runs & seen) / len(runs) if runs else None for id, runs in wanted.items()}


def task_text(task: Task) -> str:
    """Return what would give a task away: its instruction, its hidden tests and its solution."""
    folders = (task.tests, task.directory / "solution")
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in files)
    return "\n".join([task.instruction, *texts])


def texts_at(place: Path) -> Iterator[str]:
    """Yield the `task_text` of every task at a place: a task, a folder or suite of them, a packed dataset."""
    if place.is_dir():
        yield from (task_text(load_task(folder)) for folder in task_folders(place))
        return
    with TemporaryDirectory(prefix="ostinato-fence-") as folder:
        packed = PackedSource(place)
        for split in packed.splits:
            yield from (task_text(each.provide(Path(folder))) for each in packed.stored(split))


def training_texts(store: Store, decode: Decode) -> Iterator[str]:
    """Yield the text of every recorded session that training may read, the last turn of each segment."""
    for page in (page for source in LEARNT for page in chosen_sessions(store, AT_ONCE, source=source)):
        for turns in store.turns_of([session.id for session in page]).values():
            last = {turn.segment: turn for turn in turns}
            for turn in last.values():
                yield decode((*turn.prompt_ids, *turn.completion.ids))
