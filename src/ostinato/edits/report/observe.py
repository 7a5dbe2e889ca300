"""One observation of one edit: its commit, the window that is open, and what is left of its lines."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from ostinato.edits.attribution import trace
from ostinato.edits.capture.repository_paths import (
    RepositoryPaths,
    find_repository,
    head_of,
    reflog_of,
    size_of,
)
from ostinato.edits.follow import home_branch
from ostinato.edits.follow.edit import EditHunk, EditVerdict, FollowedEdit, live
from ostinato.edits.follow.measure import LOST, MeasuredEdit, measure
from ostinato.edits.follow.put_aside import put_aside
from ostinato.edits.follow.windows import COMMIT, SETTLED_S, due
from ostinato.edits.git import (
    CommitTree,
    FileTree,
    GitCommandError,
    OneFile,
    WorkTree,
    ask,
    contains,
    head_commit,
)
from ostinato.edits.report import entries
from ostinato.edits.report.journal import JournalEntry

UNREADABLE = {
    "large": "unreadable",
    "binary": "unreadable",
    "unreadable": "unreadable",
    "lfs_pointer": "lfs_pointer",
    "submodule": "submodule",
}
"""The reasons of a tree for a file that it cannot show, and those with which a window is censored."""


@dataclass(slots=True)
class Observation:
    """The result of one observation: the edit as it is now known, and the journal entries and traces to
    write."""

    edit: FollowedEdit
    now: float
    entries: list[JournalEntry] = field(default_factory=list)
    traces: list[trace.Record] = field(default_factory=list)


@dataclass(slots=True)
class RepositoryView:
    """The repositories as they are at one moment; files are read once."""

    edits: Sequence[FollowedEdit] = ()
    """All followed edits: lines that one of them put somewhere did not move there from another."""
    trees: dict[tuple[str, str], FileTree] = field(default_factory=dict)
    heads: dict[str, str | None] = field(default_factory=dict)

    def head(self, root: str) -> str | None:
        if root not in self.heads:
            self.heads[root] = head_commit(root)
        return self.heads[root]

    def measure(self, edit: FollowedEdit, tree: FileTree) -> MeasuredEdit:
        later = [o for o in self.edits if o.root == edit.root and o.proposed_at > edit.proposed_at]
        return measure(edit, tree, later)

    def put_aside(self, edit: FollowedEdit, repo: RepositoryPaths) -> str:
        """Return where git keeps the lines of an edit that are missing; empty where they were taken back."""
        return put_aside(edit, repo, lambda tree: _is_there(self.measure(edit, tree)))

    def work(self, root: str) -> FileTree:
        return self.trees.setdefault((root, ""), WorkTree(root))

    def commit(self, root: str, commit: str) -> FileTree:
        return self.trees.setdefault((root, commit), CommitTree(root, commit))


def observe(edit: FollowedEdit, now: float, view: RepositoryView) -> Observation:
    """Observe an edit: commits first, then the open window. Do nothing while git writes the work tree."""
    observation = Observation(edit=edit, now=now)
    repo = find_repository(edit.root)
    if repo is None or repo.root != edit.root:
        return _without_worktree(observation)
    if home_branch.unsettled(repo, now):
        return observation
    if not home_branch.operation(repo):
        try:
            _observe_commit(observation, repo, view)
        except GitCommandError:  # the next observation looks at the commit again
            observation = Observation(edit=edit, now=now)
    _observe_window(observation, repo, view)
    return observation


def observe_overwriting(edit: FollowedEdit, by: FollowedEdit, hunks: tuple[EditHunk, ...]) -> Observation:
    """Observe an edit at the moment at which an agent's later edit changes some of its hunks.

    The developer's verdict until then is recorded; later changes to those hunks are no verdict of theirs.
    """
    observation = Observation(edit=edit, now=by.proposed_at)
    repo = find_repository(edit.root)
    if repo and home_branch.whereabouts(repo, edit).is_home and not home_branch.operation(repo):
        measured = measure(edit, OneFile(path=by.path, text=by.before))
        settled = observation.now - edit.proposed_at >= SETTLED_S or edit.commit is not None
        if _is_there(measured) or not RepositoryView().put_aside(edit, repo):
            _judge(observation, f"superseded:{by.id}", measured.verdict, settled=settled)
    observation.edit = dataclasses.replace(observation.edit, hunks=hunks)
    observation.entries.append(
        entries.of_superseding(edit, by.id, observation.now, len(live(observation.edit)))
    )
    return observation


def _observe_window(observation: Observation, repo: RepositoryPaths, view: RepositoryView) -> None:
    windows = due(observation.edit, observation.now)
    for window in windows.missed:
        _censor(observation, window, "missed")
    if windows.window is None:
        return
    try:
        measured = _measurement(observation.edit, repo, view)
    except GitCommandError:
        measured = "git_failed"
    if isinstance(measured, str):
        _censor(observation, windows.window, measured)
        return
    observation.entries.append(
        entries.of_survival(observation.edit, windows.window, observation.now, measured)
    )
    _close_window(observation, windows.window, path=measured.path)
    settled = int(windows.window) >= SETTLED_S or observation.edit.commit is not None
    _judge(observation, windows.window, measured.verdict, settled=settled)


def _measurement(edit: FollowedEdit, repo: RepositoryPaths, view: RepositoryView) -> MeasuredEdit | str:
    """Return the measurement, or the reason why there is none."""
    if operation := home_branch.operation(repo):
        return operation
    if not home_branch.whereabouts(repo, edit).is_home:
        return "branch_changed"
    if unreadable := UNREADABLE.get(view.work(edit.root).read(edit.path)[1]):
        return unreadable
    measured = view.measure(edit, view.work(edit.root))
    return measured if _is_there(measured) else view.put_aside(edit, repo) or measured


def _observe_commit(observation: Observation, repo: RepositoryPaths, view: RepositoryView) -> None:
    """Record that the edit was committed, that its commit has another id, or that a commit took it back."""
    edit, head = observation.edit, view.head(observation.edit.root)
    if head is None or head == edit.head or not live(edit):
        return
    observation.edit = dataclasses.replace(edit, head=head)
    if view.commit(edit.root, head).read(edit.path)[1] in UNREADABLE:
        return
    measured = view.measure(edit, view.commit(edit.root, head))
    if _is_there(measured):
        _record_commit(observation, repo, head, measured, view)
    elif edit.commit and home_branch.whereabouts(repo, edit).is_home:
        _record_loss(observation, repo, head, view)


def _record_commit(
    observation: Observation, repo: RepositoryPaths, head: str, measured: MeasuredEdit, view: RepositoryView
) -> None:
    edit = observation.edit
    is_known = edit.commit is not None and contains(edit.root, edit.commit, head)
    if not home_branch.whereabouts(repo, edit).is_home:
        if not is_known and home_branch.came_by_checkout(repo):
            return
        observation.edit = edit = dataclasses.replace(
            edit, home=head_of(repo), reflog=size_of(reflog_of(repo)), anchor=head
        )
    if is_known or head == edit.base:
        return
    commit = _commit_of_lines(edit, head, measured)
    text = view.commit(edit.root, head).read(measured.path)[0]
    observation.entries.append(entries.of_commit(edit, commit, observation.now, measured))
    observation.traces.append(
        trace.of_commit(edit, measured, (text or "").splitlines(), commit, observation.now)
    )
    observation.edit = dataclasses.replace(edit, commit=commit)
    if COMMIT not in edit.done:
        observation.entries.append(entries.of_survival(edit, COMMIT, observation.now, measured))
        _close_window(observation, COMMIT, path=measured.path)
    _judge(observation, f"commit:{commit}", measured.verdict, settled=True)


def _commit_of_lines(edit: FollowedEdit, head: str, measured: MeasuredEdit) -> str:
    """Return the commit that brought the lines, by git's line history; HEAD if it tells of none since."""
    ranges = [f"-L{first},{last}:{measured.path}" for first, last in measured.lines]
    order = ("log", "-1", "-s", "--no-textconv", "--no-ext-diff", "--format=%H")
    last = ask(edit.root, *order, *ranges, head) if ranges else None
    is_older = last and edit.base and contains(edit.root, last, edit.base)
    return head if not last or is_older else last


def _record_loss(observation: Observation, repo: RepositoryPaths, head: str, view: RepositoryView) -> None:
    """Record that HEAD no longer holds the edit, if it was taken back.

    A reset may have left it in the work tree, or on another branch.
    """
    edit = observation.edit
    work = view.work(edit.root)
    if work.read(edit.path)[1] in UNREADABLE:
        return
    if _is_there(view.measure(edit, work)):
        observation.edit = dataclasses.replace(edit, commit=None)
    elif not view.put_aside(edit, repo):
        _judge(observation, f"commit:{head}", EditVerdict.REVERTED, settled=True)


def _judge(observation: Observation, window: str, verdict: EditVerdict, *, settled: bool) -> None:
    """Record a new verdict. Before an edit has settled, only a revert or its undoing is one."""
    edit = observation.edit
    early = not settled and verdict is not EditVerdict.REVERTED and edit.verdict is not EditVerdict.REVERTED
    if verdict is edit.verdict or early:
        return
    observation.edit = dataclasses.replace(edit, verdict=verdict)
    observation.entries += entries.of_verdict(edit, window, observation.now, verdict)


def _is_there(measured: MeasuredEdit) -> bool:
    return measured.kept or (measured.rates.four_gram >= LOST and measured.rates.no_revert >= LOST)


def _without_worktree(observation: Observation) -> Observation:
    windows = due(observation.edit, observation.now)
    for window in (*windows.missed, *([windows.window] if windows.window else [])):
        _censor(observation, window, "worktree_gone")
    return observation


def _censor(observation: Observation, window: str, why: str) -> None:
    observation.entries.append(entries.of_censoring(observation.edit, window, observation.now, why))
    _close_window(observation, window, path=observation.edit.path)


def _close_window(observation: Observation, window: str, *, path: str) -> None:
    observation.edit = dataclasses.replace(
        observation.edit.found_in(path), done=(*observation.edit.done, window)
    )
