"""Text that git moves or hides is not text that a developer took back.

Covers edits/follow/put_aside.py, edits/follow/wrapped_text.py, edits/follow/home_branch.py and edits/git.py.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz import git_journeys
from fuzz.git_journeys import EDITS, REJECTING, STEPS, begin
from tests.edits.conftest import Desk, run_git, sit_down

WINDOWS = (5, 30, 120, 300, 600, 900, 3_600, 86_400, 259_200)


def travel(root: Path, seed: int) -> str:
    """Lead an edit through a random journey; return the first verdict that the truth contradicts."""
    journey = begin(root, seed)
    desk, start = sit_down(root), 0.0
    git_journeys.own_work(journey)
    desk.agent("pkg/calc.py", EDITS[journey.rng.choice(sorted(EDITS))])
    start = desk.clock.at
    rejected = False
    for window in WINDOWS:
        step = journey.rng.choice(STEPS)
        before = journey.truth()
        step(journey)
        journey.steps.append(step.__name__)
        truth = journey.truth()
        rejected = truth != "here" and (rejected or (step in REJECTING and before == "here"))
        said = len(desk.signals)
        desk.clock.at = start + window
        desk.look()
        facts = desk.survival(str(window))
        told = (
            f"{facts.get('verdict')}, censored {facts.get('censored')}, truth {truth} after {journey.steps}"
        )
        is_reverted = facts.get("verdict") == "reverted" or "edit_reverted" in desk.signals[said:]
        if is_reverted and truth != "gone" and not rejected:
            return f"absence read as rejection: {told}"
        if truth == "here" and facts.get("verdict", "kept") != "kept":
            return f"what is there is not kept: {told}"
        if truth == "gone" and facts.get("verdict") == "kept":
            return f"what is gone is kept: {told}"
        if truth == "gone" and facts.get("censored") not in {None, "branch_changed", *IN_PROGRESS}:
            return f"what is gone is thought to be elsewhere: {told}"
    return ""


IN_PROGRESS = {"rebase_in_progress", "merge_in_progress", "cherry_pick_in_progress", "revert_in_progress"}


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_on_a_journey_through_git_only_what_is_gone_is_reverted(seed: int, tmp_path: Path) -> None:
    assert not travel(tmp_path / "repo", seed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(4, 200))
def test_on_many_journeys_only_what_is_gone_is_reverted(seed: int, tmp_path: Path) -> None:
    assert not travel(tmp_path / "repo", seed)


def stash_below(desk: Desk) -> None:
    """An older stash leaves the list, so that the newer log is no longer than the older was."""
    desk.git("stash", "drop", "-q")
    desk.git("stash", "-q")


def saved_on_a_branch(desk: Desk) -> None:
    desk.git("commit", "-qam", "on the wrong branch")
    desk.git("branch", "right")
    desk.git("reset", "-q", "--hard", "HEAD~1")


def pushed_alone(desk: Desk) -> None:
    desk.git("init", "-q", "--bare", "../far.git")
    desk.git("commit", "-qam", "agent")
    desk.git("push", "-q", "../far.git", "HEAD:refs/heads/review")
    desk.git("fetch", "-q", "../far.git", "+refs/heads/*:refs/remotes/far/*")
    desk.git("reset", "-q", "--hard", "HEAD~1")


def branch_put_back(desk: Desk) -> None:
    desk.git("commit", "-qam", "agent")
    desk.git("branch", "right")
    desk.git("checkout", "-q", "-B", "main", "HEAD~1")


def taken_to_a_worktree(desk: Desk) -> None:
    desk.git("stash", "-q")
    desk.git("worktree", "add", "-q", "--detach", "../second")
    run_git(desk.root.parent / "second", "stash", "pop", "-q")


def committed_in_a_worktree(desk: Desk) -> None:
    taken_to_a_worktree(desk)
    run_git(desk.root.parent / "second", "commit", "-qam", "there")


def orphan_branch(desk: Desk) -> None:
    desk.git("commit", "-qam", "agent")
    desk.git("switch", "-q", "--orphan", "pages")


def lfs_pointer(desk: Desk) -> None:
    desk.write("calc.py", f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 9\n")


def revert_half_way(desk: Desk) -> None:
    desk.git("commit", "-qam", "agent")
    desk.git("revert", "--no-commit", "HEAD")


def merge_half_way(desk: Desk) -> None:
    desk.git("commit", "-qam", "agent")
    desk.git("switch", "-q", "-c", "theirs", "HEAD~1")
    desk.write("calc.py", desk.BASE.replace("total -= value", "total ^= value"))
    desk.git("commit", "-qam", "theirs")
    desk.git("switch", "-q", "main")
    desk.git("merge", "-q", "-X", "theirs", "--no-commit", "theirs")


def kept_under_a_name(desk: Desk) -> None:
    desk.git("commit", "-qam", "agent")
    desk.git("update-ref", "refs/wip/mine", "HEAD")
    desk.git("reset", "-q", "--hard", "HEAD~1")


def tagged(desk: Desk) -> None:
    """An annotated tag, which has no date of a commit itself."""
    desk.git("commit", "-qam", "agent")
    desk.git("tag", "-a", "-m", "kept", "mine")
    desk.git("reset", "-q", "--hard", "HEAD~1")


def tagged_twice(desk: Desk) -> None:
    """A tag of a tag, whose commit `for-each-ref` does not name."""
    tagged(desk)
    desk.git("tag", "-a", "-m", "signed off", "again", "mine")
    desk.git("tag", "-d", "mine")


def tagged_as_a_tree(desk: Desk) -> None:
    desk.git("add", "-A")
    desk.git("tag", "kept", desk.git("write-tree"))
    desk.git("reset", "-q", "--hard")


def tagged_as_a_file(desk: Desk) -> None:
    desk.git("tag", "kept", desk.git("hash-object", "-w", "calc.py"))
    desk.git("checkout", "-q", "--", ".")


def annexed(desk: Desk) -> None:
    desk.write("calc.py", f"/annex/objects/SHA256E-s9--{'0' * 64}.py\n")


def in_a_letter(desk: Desk) -> None:
    desk.write("later.txt", desk.git("diff", "--no-prefix") + "\n")
    desk.git("checkout", "-q", "--", ".")


def rejected_by_apply(desk: Desk) -> None:
    """`git apply --reject` writes the hunks that do not fit into calc.py.rej."""
    desk.git("diff", "--output=../a.patch")
    desk.write("calc.py", desk.BASE.replace("total -= value", "total ^= value"))
    desk.git("commit", "-qam", "theirs")
    desk.git("apply", "--reject", "../a.patch", check=False)
    assert (desk.root / "calc.py.rej").exists()


def staged_alone(desk: Desk) -> None:
    desk.git("add", "-A")
    desk.git("restore", "--source=HEAD", "--worktree", ".")


def staged_in_a_worktree(desk: Desk) -> None:
    taken_to_a_worktree(desk)
    run_git(desk.root.parent / "second", "add", "-A")
    run_git(desk.root.parent / "second", "restore", "--source=HEAD", "--worktree", ".")


def moved_to_ignored(desk: Desk) -> None:
    desk.write(".git/info/exclude", "scratch/\n")
    (desk.root / "scratch").mkdir()
    (desk.root / "calc.py").rename(desk.root / "scratch" / "calc.py")


def noted_in_ignored(desk: Desk) -> None:
    desk.write(".git/info/exclude", "*.txt\n")
    desk.write("later.txt", f"try this again:\n\n{desk.PROPOSED}")
    desk.git("checkout", "-q", "--", ".")


def in_a_notebook(desk: Desk) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Sums\n"]},
        {"cell_type": "code", "source": desk.PROPOSED.splitlines(keepends=True), "outputs": []},
    ]
    desk.write("sums.ipynb", json.dumps({"cells": cells, "nbformat": 4}))
    desk.git("checkout", "-q", "--", ".")


def in_an_old_notebook(desk: Desk) -> None:
    """A notebook of version 3, committed on another branch."""
    cells = [{"cell_type": "code", "input": desk.PROPOSED}]
    desk.git("checkout", "-q", "--", ".")
    desk.write("sums.ipynb", json.dumps({"worksheets": [{"cells": cells}], "nbformat": 3}))
    desk.git("add", "-A")
    saved_on_a_branch(desk)


def in_a_patch(desk: Desk) -> None:
    desk.write("later.patch", desk.git("diff") + "\n")
    desk.git("checkout", "-q", "--", ".")


def in_a_repository_of_its_own(desk: Desk) -> None:
    desk.git("init", "-q", "scratch")
    (desk.root / "calc.py").rename(desk.root / "scratch" / "calc.py")


def became_a_submodule(desk: Desk) -> None:
    """The folder of the edit is a repository of its own now."""
    desk.git("clone", "-q", ".", "../library")
    (desk.root.parent / "library" / "calc.py").write_text(desk.PROPOSED)
    run_git(desk.root.parent / "library", "commit", "-qam", "moved here")
    desk.git("rm", "-qf", "calc.py")
    desk.git("submodule", "add", "-q", "../library", "library")
    desk.git("commit", "-qm", "a library")


@pytest.mark.parametrize(
    ("hide", "reason"),
    [
        (stash_below, "stashed"),
        (saved_on_a_branch, "other_branch"),
        (pushed_alone, "other_branch"),
        (branch_put_back, "other_branch"),
        (taken_to_a_worktree, "other_worktree"),
        (committed_in_a_worktree, "other_branch"),
        (orphan_branch, "branch_changed"),
        (lfs_pointer, "lfs_pointer"),
        (revert_half_way, "revert_in_progress"),
        (merge_half_way, "merge_in_progress"),
        (became_a_submodule, "submodule"),
        (kept_under_a_name, "other_branch"),
        (tagged, "other_branch"),
        (tagged_twice, "other_branch"),
        (tagged_as_a_tree, "other_branch"),
        (tagged_as_a_file, "other_branch"),
        (annexed, "lfs_pointer"),
        (in_a_letter, "other_form"),
        (rejected_by_apply, "other_form"),
        (staged_alone, "staged"),
        (staged_in_a_worktree, "other_worktree"),
        (moved_to_ignored, "ignored"),
        (noted_in_ignored, "ignored"),
        (in_a_notebook, "other_form"),
        (in_an_old_notebook, "other_branch"),
        (in_a_patch, "other_form"),
        (in_a_repository_of_its_own, "submodule"),
    ],
)
def test_lines_that_are_elsewhere_are_censored_with_the_place(
    desk: Desk, hide: Callable[[Desk], None], reason: str
) -> None:
    desk.write("other.py", "def other():\n    return 2\n")
    desk.git("stash", "-q")
    desk.agent("calc.py", desk.PROPOSED)
    hide(desk)
    desk.look()
    desk.after(900)
    assert desk.survival("900").get("censored") == reason
    assert "edit_reverted" not in desk.signals


def test_a_branch_that_kept_the_lines_and_is_deleted_is_a_revert(desk: Desk) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    saved_on_a_branch(desk)
    desk.after(900)
    desk.git("branch", "-q", "-D", "right")
    desk.after(3_600)
    assert desk.signals == ["edit_reverted"]


def test_places_that_had_the_lines_by_the_way_do_not_hide_a_revert(desk: Desk) -> None:
    """A stash of other work and a branch are made while the edit is committed, which then is reverted."""
    desk.agent("calc.py", desk.PROPOSED)
    desk.commit("agent")
    desk.write("other.py", "def other():\n    return 2\n")
    desk.git("stash", "-q")
    desk.git("branch", "later", desk.git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "more"))
    desk.git("revert", "--no-edit", "HEAD")
    desk.after(900)
    assert desk.signals == ["edit_kept", "edit_reverted"]


def keeps_a_copy_of_a_build(desk: Desk) -> None:
    desk.write(".git/info/exclude", "build/\n")
    desk.write("build/lib/calc.py", desk.PROPOSED)
    desk.write("calc.py", desk.BASE)


def keeps_the_old_history(desk: Desk) -> None:
    """What `git filter-branch` leaves under refs/original is its own backup, as the reflog is."""
    desk.git("commit", "-qam", "agent")
    desk.git("update-ref", "refs/original/refs/heads/main", "HEAD")
    desk.git("reset", "-q", "--hard", "HEAD~1")


def commits_and_takes_back(desk: Desk) -> None:
    """The index holds what HEAD holds, and nothing that waits to be committed."""
    desk.git("commit", "-qam", "agent")
    desk.write("calc.py", desk.BASE)


def had_a_notebook(desk: Desk) -> None:
    desk.write("sums.ipynb", "{not JSON")
    desk.write("calc.py", desk.BASE)


@pytest.mark.parametrize(
    "reject", [keeps_a_copy_of_a_build, keeps_the_old_history, commits_and_takes_back, had_a_notebook]
)
def test_what_nobody_kept_is_still_a_revert(desk: Desk, reject: Callable[[Desk], None]) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    reject(desk)
    desk.after(900)
    assert desk.signals[-1] == "edit_reverted"


def test_a_branch_older_than_the_edit_does_not_keep_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.git("switch", "-q", "-c", "old")
    desk.write("calc.py", desk.PROPOSED)
    monkeypatch.setenv("GIT_COMMITTER_DATE", "@999000 +0000")
    desk.git("commit", "-qam", "the same idea, years ago")
    desk.git("switch", "-q", "main")
    desk.agent("calc.py", desk.PROPOSED)
    desk.write("calc.py", desk.BASE)
    desk.after(900)
    assert desk.signals == ["edit_reverted"]


def test_a_file_outside_of_the_sparse_cone_is_as_the_index_has_it(desk: Desk) -> None:
    desk.write("pkg/calc.py", desk.BASE)
    desk.write("docs/a.txt", "a\n")
    desk.commit("package")
    desk.agent("pkg/calc.py", desk.PROPOSED)
    desk.commit("agent")
    desk.git("sparse-checkout", "set", "docs")
    assert not (desk.root / "pkg").exists()
    desk.after(900)
    assert desk.survival("900")["verdict"] == "kept" and desk.signals == ["edit_kept"]
    desk.git("revert", "--no-edit", "HEAD")
    desk.after(3_600)
    assert desk.signals == ["edit_kept", "edit_reverted"]


def test_a_submodule_that_is_not_checked_out_hides_its_files(desk: Desk) -> None:
    desk.write("library/calc.py", desk.BASE)
    desk.commit("package")
    desk.agent("library/calc.py", desk.PROPOSED)
    desk.git("clone", "-q", ".", "../library")
    shutil.copytree(desk.root / "library", desk.root.parent / "library" / "library", dirs_exist_ok=True)
    desk.git("rm", "-rqf", "library")
    desk.git("submodule", "add", "-q", "../library", "library")
    desk.git("submodule", "-q", "deinit", "-f", "library")
    desk.after(900)
    assert desk.survival("900")["censored"] == "submodule" and not desk.signals


def test_an_agent_that_writes_where_stashed_lines_were_is_no_rejection(desk: Desk) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    desk.git("stash", "-q")
    desk.clock.at += 60
    desk.agent("calc.py", desk.BASE.replace("total -= value", "total += weight_of(value, scale=2)"), turn=5)
    assert len(desk.named("edit.superseded")) == 1 and "edit_reverted" not in desk.signals


def test_a_deleted_file_that_a_stash_brings_back_is_still_deleted(desk: Desk) -> None:
    desk.agent("other.py", None)
    desk.git("stash", "-q")
    desk.after(5)
    assert desk.survival("5")["censored"] == "stashed"
    desk.git("stash", "drop", "-q")
    desk.git("switch", "-q", "--orphan", "pages")
    desk.git("commit", "-q", "--allow-empty", "-m", "pages")
    desk.git("switch", "-q", "main")
    desk.after(25)
    assert desk.survival("30")["verdict"] == "reverted"


def test_after_the_old_history_was_removed_the_edit_is_found_in_the_new(desk: Desk) -> None:
    """As after `git filter-repo --to-subdirectory-filter`: no old commit, no reflog, another path."""
    desk.agent("calc.py", desk.PROPOSED)
    desk.commit("agent")
    desk.git("checkout", "-q", "--orphan", "new")
    (desk.root / "deep").mkdir()
    desk.git("mv", "calc.py", "other.py", "deep")
    desk.git("commit", "-qm", "rewritten")
    desk.git("branch", "-q", "-M", "new", "main")
    desk.git("reflog", "expire", "--expire=now", "--all")
    desk.git("gc", "-q", "--prune=now")
    for number in range(6):
        desk.git("commit", "-q", "--allow-empty", "-m", f"{number}: the new reflog grows past the old")
    desk.look()
    desk.after(900)
    assert desk.survival("900")["verdict"] == "kept" and desk.signals == ["edit_kept"]


@pytest.mark.parametrize("new", ["x[-1]", None])
def test_a_short_edit_moves_with_the_function_around_it(desk: Desk, new: str | None) -> None:
    """Too short to prove a move alone: a line in a function that leaves for a file of its own."""
    pieces = ["def beta(x):\n", "    first, *others = x\n", "    return x[1]\n"]
    base = desk.BASE.replace(
        "def beta(x):\n    return x[1]\n", "".join([*pieces[:2], "    log(x)\n", pieces[2]])
    )
    desk.write("calc.py", base)
    desk.commit("base")
    after = base.replace("    log(x)\n", "") if new is None else base.replace("x[1]", new)
    desk.agent("calc.py", after)
    for name in ("alpha", "beta", "gamma"):
        body = after[after.index(f"def {name}") :].split("\n\n\n")[0].rstrip("\n")
        desk.write(f"{name}.py", f"import os\n\n\n{body}\n")
    (desk.root / "calc.py").unlink()
    desk.after(900)
    assert desk.signals == ["edit_kept"]


def test_a_name_that_changes_by_case_alone_is_a_move(desk: Desk) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    desk.git("mv", "calc.py", "Calc.py")
    desk.commit("renamed")
    os.rename(desk.root / "Calc.py", desk.root / "CALC.py")
    desk.after(900)
    assert desk.signals == ["edit_kept"]


def test_what_may_not_be_read_is_not_missing(desk: Desk) -> None:
    from ostinato.edits.capture import spool

    assert spool.content(str(desk.root / ("n" * 300))) == (None, "unreadable")
    assert spool.content(str(desk.root / "calc.py" / "below")) == (None, "missing")
