"""Tasks from recorded sessions: the tree at the start, the user's words, and what was finally committed.

::

    log of a session ─► first checkpoint ─► the tree before ─┐
                    └─► first words of the user, verbatim    ├─► tests before, after ─► task, or a reason
    repository ─► first commit of its edits since then ──────┘

The tree lies in the private repository of the checkpoints, which borrows the objects of the person's own. A
session of another client, such as Claude Code, has its tree and its edited files from the hooks. Hooks never
keep what a person says, so its words are those that the gateway recorded, read with the record's tokenizer.
No task is made of a session without consent in the record, or purged from it. Only when it began and which
files it edited is read of it, so that its work is not taken for that of another session.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ostinato.edits.capture import starts
from ostinato.edits.capture.repository_paths import find_repository, state_of
from ostinato.git import run
from ostinato.harness.session_log import LogEvent, LogEventKind, Sessions
from ostinato.harness.workspace.checkpoints import place_of, tree_of
from ostinato.mining.archive import licence
from ostinato.mining.base import MiningError, SourceTree, is_test, repository_name, settings_of
from ostinato.mining.history import Commit, files_of, output
from ostinato.mining.mine import Miner
from ostinato.mining.past import mine_commit
from ostinato.model.tokenizer import Tokenizer
from ostinato.rewards.follow_ups.read import words_of
from ostinato.sandbox.base import Backend
from ostinato.store import Store
from ostinato.store.redaction.find import redact
from ostinato.types import Task

SKEW_S = 1.0
"""The clock of a commit has whole seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSession:
    """The part of a session's log that a task is made of.

    >>> RecordedSession(
    ...     id="s1", words=("fix it",), tree="9f", place=Path("1a"), began_at=0.0, edited=("a.py",)
    ... ).words[0]
    'fix it'
    """

    id: str
    words: tuple[str, ...]
    """The user's words, one text for each prompt, with secrets redacted and nothing else changed."""
    tree: str
    """The tree as the first call found it that may change files."""
    place: Path
    """The bare repository that holds the tree, and borrows the objects of the person's own."""
    began_at: float
    edited: tuple[str, ...]


class SessionReading(Protocol):
    """The reading of one session, with or without what its user said."""

    def __call__(self, *, with_words: bool) -> RecordedSession:
        """Return the session; raises MiningError when a part of it is missing."""


def recorded(id: str, events: Sequence[LogEvent], place: Path, *, with_words: bool) -> RecordedSession:
    """Return what a log says; raises MiningError when a part of it is missing."""
    said = [event for event in events if event.kind is LogEventKind.USER] if with_words else []
    trees = [event for event in events if event.kind is LogEventKind.CHECKPOINT]
    edited = dict.fromkeys(str(event.data["path"]) for event in events if event.kind is LogEventKind.EDIT)
    if with_words and not said:
        raise MiningError("no words of the user", id, "the log is empty or damaged")
    if not trees or not edited:
        raise MiningError("no edit", id, f"{len(trees)} checkpoints, {len(edited)} edited files")
    return RecordedSession(
        id=id,
        words=tuple(redact(str(event.data["text"])) for event in said),
        tree=tree_of(str(trees[0].data["tree"])),
        place=place,
        began_at=trees[0].at,
        edited=tuple(edited),
    )


def outside_sessions(root: Path, store: Store, tokenizer: Tokenizer | None) -> Mapping[str, SessionReading]:
    """Return by id the readings of the sessions whose start the hooks kept in the work tree `root`."""
    repo = find_repository(str(root))
    found: dict[str, SessionReading] = {}
    for folder in starts.folders(state_of(repo)) if repo is not None else ():
        start = starts.read(folder)
        if repo is not None and start is not None and start["root"] == repo.root:
            id = str(start["session_id"])
            found[id] = partial(_recorded, id, Path(folder), start, store, tokenizer)
    return found


def _recorded(
    id: str,
    folder: Path,
    start: Mapping[str, object],
    store: Store,
    tokenizer: Tokenizer | None,
    *,
    with_words: bool,
) -> RecordedSession:
    edited = starts.edited(str(folder))
    if not edited:
        raise MiningError("no edit", id, "the hooks reported none")
    if not start["tree"]:
        raise MiningError("no tree at its start", id, str(start["why"]))
    return RecordedSession(
        id=id,
        words=_words(id, store, tokenizer) if with_words else (),
        tree=str(start["tree"]),
        place=folder,
        began_at=float(str(start["at"])),
        edited=edited,
    )


def _words(id: str, store: Store, tokenizer: Tokenizer | None) -> tuple[str, ...]:
    if tokenizer is None:
        raise MiningError("no words of the user", id, "name the record's tokenizer with --checkpoint")
    words = words_of(store.turns_of([id]).get(id, ()), tokenizer)
    if not words:
        raise MiningError("no words of the user", id, "its recorded prompts have none")
    return tuple(map(redact, words))


class SessionMiner:
    """The mining of the sessions in one repository; `store` is the gateway's record, which holds consent."""

    def __init__(
        self,
        backend: Backend,
        miner: Miner,
        store: Store,
        sessions: Sessions,
        root: Path,
        *,
        outside: Mapping[str, SessionReading] | None = None,
    ) -> None:
        self._backend = backend
        self._miner = miner
        self._store = store
        self._sessions = sessions
        self._root = root.resolve()
        self._private = place_of(self._root, sessions.directory.parent / "checkpoints")
        self._outside = outside or {}
        self._all: list[RecordedSession] = []

    async def mine(self, say: Callable[[str], None] = lambda _: None) -> list[Task]:
        """Mine every session that took place in this repository; one that cannot be used is counted."""
        tasks, tally = list[Task](), self._miner.tally
        readings = dict(self._outside)
        for id, events in self._sessions.newest(str(self._root)):
            readings[id] = partial(recorded, id, events, self._private)
        self._all = []
        for reading in readings.values():
            with suppress(MiningError):
                self._all.append(reading(with_words=False))
        for id, reading in readings.items():
            tally.count("sessions read")
            try:
                self._check_consent(id)
                session = reading(with_words=True)
                commit = self.commit(session)
                draft = await mine_commit(self._backend, commit, detail="plain")
            except MiningError as error:
                tally.refuse(error)
                say(f"left out: {error}")
                continue
            tally.count("sessions that tell before from after")
            origin: dict[str, Any] = {
                "from": "session",
                "session": id,
                "commit": commit.id,
                "words": list(session.words),
                "edited": list(session.edited),
            }
            task = await self._miner.validated(
                replace(draft, name="session", evidence={**draft.evidence, "source": origin})
            )
            tasks += [task] if task is not None else []
        return tasks

    def commit(self, session: RecordedSession) -> Commit:
        """Return what was committed of a session's edits, against the tree that the session began with.

        Files that lay there and that nobody ever committed are left out: they are the person's own.
        """
        id = self._committed(session)
        run = partial(self._git, session, session.place)
        after, committed = files_of(session.id, id, run), self._committed_before(session, id)
        found = files_of(session.id, session.tree, run)
        before = {path: data for path, data in found.items() if path in after or path in committed}
        before |= settings_of(after)
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        sources = {path: after[path] for path in changed if path in after and not is_test(path)}
        if gone := [path for path in changed if path not in after and not is_test(path)]:
            raise MiningError("deletes sources", session.id, gone[0])
        if not any(path.endswith(".py") for path in sources):
            raise MiningError(
                "changes no sources", session.id, f"commit {id[:9]} changes {len(changed)} files"
            )
        tests = {path: after[path] for path in changed if path in after and is_test(path)}
        if not any(path.endswith(".py") for path in tests):  # the suite that is there may tell them apart
            tree = SourceTree(name="x", version="x", files=after, licence="")
            tests = {path: after[path] for path in tree.tests}
        if not tests:
            raise MiningError("no tests", session.id, f"commit {id[:9]} has no file of tests")
        return Commit(
            id=id,
            parent=session.tree,
            date=time.strftime("%Y-%m-%d", time.gmtime(session.began_at)),
            message=session.words[0],
            sources=sources,
            tests=tests,
            before=before,
            name=repository_name(self._root.name),
            licence=licence(before),
        )

    def _check_consent(self, id: str) -> None:
        session = self._store.session(id)
        if session is None or id in self._store.purged([id]):
            raise MiningError("not in the record", id, "its consent is unknown")
        if not session.source.of_people or not self._store.accounts.may_train_on([session]):
            raise MiningError("no consent", id, f"a {session.source.value} session of {session.user}")

    def _committed(self, session: RecordedSession) -> str:
        """Return the first commit since the session began in which a file that it edited is another one.

        The clock of commits has whole seconds, so one of the second in which the session began may be older;
        it is when the session's own start follows it.
        """
        since = f"--since-as-filter={int(session.began_at - SKEW_S)}"
        order = ("--first-parent", "--reverse", since, "--format=%H %ct")
        log = self._git(session, self._root, "log", *order, "--", *session.edited)
        before = self._listing(session, session.tree)
        commits = [(id, int(at)) for id, at in (line.split() for line in log.decode().splitlines())]
        others = [(id, at, self._listing(session, id) != before) for id, at in commits]
        early = [n for n, (_, at, other) in enumerate(others) if at <= session.began_at and not other]
        for id, at, other in others[early[-1] + 1 if early else 0 :]:
            if other:
                self._check_alone(session, id, at)
                return id
        raise MiningError("nothing was committed", session.id, ", ".join(session.edited)[:200])

    def _committed_before(self, session: RecordedSession, id: str) -> set[str]:
        """Return the paths of the commit before."""
        walk = ("rev-list", "--max-count=1", "--skip=1", "--first-parent", id)
        parent = self._git(session, self._root, *walk).decode().strip()
        if not parent:
            return set()
        listed = self._git(session, self._root, "ls-tree", "-r", "-z", "--name-only", "--full-tree", parent)
        return set(listed.decode("utf-8", "surrogateescape").split("\0")[:-1])

    def _check_alone(self, session: RecordedSession, commit: str, at: int) -> None:
        """Raise MiningError when a later session edited the same files before they were committed at `at`.

        The words of this session would then ask for what another one did. A later session that found the
        files as they were committed began after the commit, whatever the clocks say.
        """
        for other in self._all:
            later = session.began_at < other.began_at < at + SKEW_S
            if not later or set(session.edited).isdisjoint(other.edited):
                continue
            if self._listing(other, other.tree, session.edited) != self._listing(session, commit):
                raise MiningError("mixed with a later session", session.id, f"{other.id}, in {commit[:9]}")

    @staticmethod
    def _git(session: RecordedSession, place: Path, *arguments: str, given: bytes = b"") -> bytes:
        """Return git's output in the repository, or in the session's own folder. Raises MiningError."""
        return output(session.id, lambda: run(place, *arguments, given=given))

    def _listing(self, session: RecordedSession, tree: str, paths: Iterable[str] = ()) -> bytes:
        """Return the edited files of a tree, or others, with their contents' ids."""
        wanted = tuple(paths) or session.edited
        order = ("ls-tree", "-r", "-z", "--full-tree", tree, "--", *wanted)
        return self._git(session, session.place, *order)
