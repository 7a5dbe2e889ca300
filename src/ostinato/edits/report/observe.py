"""One look at one edit: is it in a commit, which window is open, what is there to see."""

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
from ostinato.edits.follow.measure import LOST, Measured, measure
from ostinato.edits.follow.windows import COMMIT, SETTLED_S, due
from ostinato.edits.git import CommitTree, FileTree, OneFile, WorkTree, ask, contains, head_commit
from ostinato.edits.report import entries
from ostinato.edits.report.journal import JournalEntry

UNREADABLE = ("large", "binary")


@dataclass(slots=True)
class Observation:
    """What one look at an edit found: the edit as it is now known, and what to tell."""

    edit: FollowedEdit
    now: float
    told: list[JournalEntry] = field(default_factory=list)
    traces: list[trace.Record] = field(default_factory=list)


@dataclass(slots=True)
class RepositoryView:
    """The repositories as they are at this moment; files are read once."""

    edits: Sequence[FollowedEdit] = ()
    """All that are followed: what one of them put somewhere did not move there from another."""
    trees: dict[tuple[str, str], FileTree] = field(default_factory=dict)
    heads: dict[str, str | None] = field(default_factory=dict)

    def head(self, root: str) -> str | None:
        if root not in self.heads:
            self.heads[root] = head_commit(root)
        return self.heads[root]

    def measure(self, edit: FollowedEdit, tree: FileTree) -> Measured:
        later = [o for o in self.edits if o.root == edit.root and o.proposed_at > edit.proposed_at]
        return measure(edit, tree, later)

    def work(self, root: str) -> FileTree:
        return self.trees.setdefault((root, ""), WorkTree(root))

    def commit(self, root: str, commit: str) -> FileTree:
        return self.trees.setdefault((root, commit), CommitTree(root, commit))


def observe(edit: FollowedEdit, now: float, view: RepositoryView) -> Observation:
    """Commits first, then the open window. Nothing is looked at while git rewrites the work tree."""
    seen = Observation(edit=edit, now=now)
    repo = find_repository(edit.root)
    if repo is None or repo.root != edit.root:
        return _without_worktree(seen)
    if home_branch.unsettled(repo, now):
        return seen
    if not home_branch.rebasing(repo):
        _commits(seen, repo, view)
    _windows(seen, repo, view)
    return seen


def observe_overwriting(edit: FollowedEdit, by: FollowedEdit, hunks: tuple[EditHunk, ...]) -> Observation:
    """An agent's next edit changes some of the hunks: what the developer made of them until then is told, and
    what happens there later is no word of theirs."""
    seen = Observation(edit=edit, now=by.proposed_at)
    repo = find_repository(edit.root)
    if repo and home_branch.whereabouts(repo, edit.home, edit.reflog).is_home:
        found = measure(edit, OneFile(path=by.path, text=by.before))
        settled = seen.now - edit.proposed_at >= SETTLED_S or edit.commit is not None
        _judge(seen, f"superseded:{by.id}", found.verdict, settled=settled)
    seen.edit = dataclasses.replace(seen.edit, hunks=hunks)
    seen.told.append(entries.of_superseding(edit, by.id, seen.now, len(live(seen.edit))))
    return seen


def _windows(seen: Observation, repo: RepositoryPaths, view: RepositoryView) -> None:
    coming = due(seen.edit, seen.now)
    for window in coming.missed:
        _censor(seen, window, "missed")
    if coming.window is None:
        return
    found = _see(seen.edit, repo, view)
    if isinstance(found, str):
        _censor(seen, coming.window, found)
        return
    seen.told.append(entries.of_survival(seen.edit, coming.window, seen.now, found))
    _done(seen, coming.window, path=found.path)
    settled = int(coming.window) >= SETTLED_S or seen.edit.commit is not None
    _judge(seen, coming.window, found.verdict, settled=settled)


def _see(edit: FollowedEdit, repo: RepositoryPaths, view: RepositoryView) -> Measured | str:
    """The measurement, or why none can be made."""
    if home_branch.rebasing(repo):
        return "rebase_in_progress"
    if not home_branch.whereabouts(repo, edit.home, edit.reflog).is_home:
        return "branch_changed"
    if view.work(edit.root).read(edit.path)[1] in UNREADABLE:
        return "unreadable"
    found = view.measure(edit, view.work(edit.root))
    return "stashed" if _is_stashed(edit, found, repo, view) else found


def _is_stashed(edit: FollowedEdit, found: Measured, repo: RepositoryPaths, view: RepositoryView) -> bool:
    """Whether what is missing here lies in a stash made since."""
    if _is_there(found):
        return False
    for stash in home_branch.stashed_since(repo, edit.stashes):
        parts = [stash, ask(edit.root, "rev-parse", "--verify", "--quiet", f"{stash}^3")]
        if any(_is_there(view.measure(edit, view.commit(edit.root, part))) for part in parts if part):
            return True
    return False


def _commits(seen: Observation, repo: RepositoryPaths, view: RepositoryView) -> None:
    """Has the edit been committed, has its commit got another id, has it been taken back by a commit?"""
    edit, head = seen.edit, view.head(seen.edit.root)
    if head is None or head == edit.head or not live(edit):
        return
    seen.edit = dataclasses.replace(edit, head=head)
    found = view.measure(edit, view.commit(edit.root, head))
    if _is_there(found):
        _arrived(seen, repo, head, found, view)
    elif edit.commit and home_branch.whereabouts(repo, edit.home, edit.reflog).is_home:
        _taken_back(seen, head, view)


def _arrived(
    seen: Observation, repo: RepositoryPaths, head: str, found: Measured, view: RepositoryView
) -> None:
    edit = seen.edit
    is_known = edit.commit is not None and contains(edit.root, edit.commit, head)
    if not home_branch.whereabouts(repo, edit.home, edit.reflog).is_home:
        if not is_known and home_branch.came_by_checkout(repo):
            return
        seen.edit = edit = dataclasses.replace(edit, home=head_of(repo), reflog=size_of(reflog_of(repo)))
    if is_known or head == edit.base:
        return
    commit = _bringing(edit, head, found)
    text = view.commit(edit.root, head).read(found.path)[0]
    seen.told.append(entries.of_commit(edit, commit, seen.now, found))
    seen.traces.append(trace.of_commit(edit, found, (text or "").splitlines(), commit, seen.now))
    seen.edit = dataclasses.replace(edit, commit=commit)
    if COMMIT not in edit.done:
        seen.told.append(entries.of_survival(edit, COMMIT, seen.now, found))
        _done(seen, COMMIT, path=found.path)
    _judge(seen, f"commit:{commit}", found.verdict, settled=True)


def _bringing(edit: FollowedEdit, head: str, found: Measured) -> str:
    """The commit that brought the lines, as line history tells; HEAD's for lines that were there before."""
    ranges = [f"-L{first},{last}:{found.path}" for first, last in found.lines]
    last = ask(edit.root, "log", "-1", "-s", "--format=%H", *ranges, head) if ranges else None
    is_older = last and edit.base and contains(edit.root, last, edit.base)
    return head if not last or is_older else last


def _taken_back(seen: Observation, head: str, view: RepositoryView) -> None:
    """HEAD lost it: by a revert, or by a reset that left it in the work tree."""
    if _is_there(view.measure(seen.edit, view.work(seen.edit.root))):
        seen.edit = dataclasses.replace(seen.edit, commit=None)
    else:
        _judge(seen, f"commit:{head}", EditVerdict.REVERTED, settled=True)


def _judge(seen: Observation, window: str, verdict: EditVerdict, *, settled: bool) -> None:
    """Tells a verdict that is new. Before things have settled only a revert, and its undoing, is one."""
    edit = seen.edit
    early = not settled and verdict is not EditVerdict.REVERTED and edit.verdict is not EditVerdict.REVERTED
    if verdict is edit.verdict or early:
        return
    seen.edit = dataclasses.replace(edit, verdict=verdict)
    seen.told += entries.of_verdict(edit, window, seen.now, verdict)


def _is_there(found: Measured) -> bool:
    return found.kept or (found.rates.four_gram >= LOST and found.rates.no_revert >= LOST)


def _without_worktree(seen: Observation) -> Observation:
    coming = due(seen.edit, seen.now)
    for window in (*coming.missed, *([coming.window] if coming.window else [])):
        _censor(seen, window, "worktree_gone")
    return seen


def _censor(seen: Observation, window: str, why: str) -> None:
    seen.told.append(entries.of_censoring(seen.edit, window, seen.now, why))
    _done(seen, window, path=seen.edit.path)


def _done(seen: Observation, window: str, *, path: str) -> None:
    seen.edit = dataclasses.replace(seen.edit.found_in(path), done=(*seen.edit.done, window))
