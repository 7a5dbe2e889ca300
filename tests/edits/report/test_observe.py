"""An edit through everything that git does to it: real repositories, real commands, a clock set by hand.

Covers edits/report/observe.py, edits/report/entries.py, edits/report/ingest.py, edits/follow/edit.py,
edits/follow/home_branch.py, edits/follow/locate.py, edits/follow/measure.py, edits/follow/windows.py and
edits/git.py.
"""

import shutil
import subprocess

import pytest

WHOLE = {"survival_rate_four_gram": 1.0, "survival_rate_no_revert": 1.0}
BODY = """def fresh(values):
    seen = set()
    for value in values:
        seen.add(value)
    return seen
"""
NOTHING = {"survival_rate_four_gram": 0.0, "survival_rate_no_revert": 0.0}


def rates(facts):
    return {name: facts[name] for name in WHOLE}


@pytest.fixture
def edited(desk):
    """A desk with a proposal that is not committed yet."""
    desk.agent("calc.py", desk.PROPOSED)
    return desk


@pytest.fixture
def committed(edited):
    """A desk with a proposal that is committed on a branch of its own."""
    edited.git("switch", "-q", "-c", "feature")
    edited.commit("agent")
    return edited


def test_the_whole_schedule_of_an_edit_that_stays(edited) -> None:
    for seconds in (5, 25, 90, 180, 300, 300, 2_700, 82_800, 172_800, 345_600):
        edited.after(seconds)
    told = [e["attributes"] for e in edited.named("edit.survival")]
    windows = ["0", "5", "30", "120", "300", "600", "900", "3600", "86400", "259200", "604800"]
    assert [t["window"] for t in told] == windows
    assert all(rates(t) == WHOLE for t in told)
    assert [t["time_delay_ms"] for t in told] == [int(w) * 1000 for w in windows]
    assert edited.signals == ["edit_kept"]
    assert not list((edited.reporter.journal._path.parent / "edits").iterdir())


def test_a_proposal_is_reported_without_its_text(edited) -> None:
    [event] = edited.named("edit.proposed")
    facts = event["attributes"]
    assert (event["session_id"], event["turn"]) == ("s1", 2)
    assert (facts["lines_added"], facts["lines_removed"], facts["language_id"]) == (3, 1, "python")
    assert "scale_of" not in edited.reporter.journal._path.read_text()
    assert "calc" not in edited.reporter.journal._path.read_text()


def test_an_edit_put_back_is_reverted(edited) -> None:
    edited.write("calc.py", edited.BASE)
    edited.after(6)
    assert edited.survival("5")["survival_rate_no_revert"] == 0.0
    assert edited.signals == ["edit_reverted"]
    assert len(edited.named("edit.revert")) == 1


def test_an_edit_put_back_and_done_again_is_kept(edited) -> None:
    edited.write("calc.py", edited.BASE)
    edited.after(6)
    edited.write("calc.py", edited.PROPOSED)
    edited.after(60)
    assert edited.signals == ["edit_reverted", "edit_kept"]


def test_an_edit_that_is_changed_is_edited(edited) -> None:
    edited.write("calc.py", edited.PROPOSED.replace("abs(value)", "value").replace("is None", "== 0"))
    edited.after(900)
    assert 0.5 < edited.survival("900")["survival_rate_four_gram"] < 1.0
    assert edited.signals == ["edit_edited"]


def test_lines_beside_the_edit_are_not_its_lines(edited) -> None:
    text = edited.PROPOSED.replace("import os\n", "import os\nimport sys\n\nX = 1\n")
    edited.write("calc.py", text.replace("    return total\n", "    print(total)\n    return total\n"))
    edited.after(5)
    assert rates(edited.survival("5")) == WHOLE


def test_a_deleted_file_is_zero(edited) -> None:
    (edited.root / "calc.py").unlink()
    edited.after(5)
    assert rates(edited.survival("5")) == NOTHING
    assert edited.signals == ["edit_reverted"]


def test_a_new_file_is_kept_and_its_deletion_a_revert(desk) -> None:
    desk.agent("new.py", "def fresh():\n    return 1\n")
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE
    (desk.root / "new.py").unlink()
    desk.after(25)
    assert rates(desk.survival("30")) == NOTHING


def test_a_file_the_agent_deleted_may_come_back(desk) -> None:
    desk.agent("other.py", None)
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE
    desk.git("checkout", "--", "other.py")
    desk.after(25)
    assert rates(desk.survival("30")) == NOTHING


def test_lines_the_agent_deleted_may_come_back(desk) -> None:
    desk.agent("calc.py", desk.BASE.replace("def beta(x):\n    return x[1]\n\n\n", ""))
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE
    desk.write("calc.py", desk.BASE)
    desk.after(25)
    assert rates(desk.survival("30")) == NOTHING
    assert desk.signals == ["edit_reverted"]


# What git does


def test_commit(edited) -> None:
    commit = edited.commit("agent")
    assert rates(edited.survival("commit")) == WHOLE
    [event] = edited.named("edit.commit")
    assert event["attributes"]["commit"] == commit
    assert edited.signals == ["edit_kept"]


def test_commit_of_something_else_is_not_its_commit(edited) -> None:
    edited.write("other.py", "x = 1\n")
    edited.commit("mine", "other.py")
    assert not edited.named("edit.commit")
    assert not edited.signals


def test_commit_of_a_part_then_of_the_rest(desk) -> None:
    """The first hunk is committed first, as with `git add -p`, the second later."""
    first = desk.BASE.replace("total -= value", "total += abs(value) * scale_of(value)")
    desk.agent("calc.py", first.replace("return x[1]", "return x[len(x) // 2 - 1]"))
    desk.write("calc.py", first)
    desk.git("add", "calc.py")
    desk.write("calc.py", first.replace("return x[1]", "return x[len(x) // 2 - 1]"))
    desk.git("commit", "-q", "-m", "part")
    desk.look()
    assert 0.4 < desk.survival("commit")["survival_rate_no_revert"] < 0.9
    desk.commit("rest")
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE
    assert desk.signals[-1] == "edit_kept"


def test_amend_gives_the_commit_a_new_id(edited) -> None:
    first = edited.commit("agent")
    edited.write("other.py", "def other():\n    return 2\n")
    edited.git("commit", "-q", "--amend", "-a", "-m", "agent, better")
    edited.look()
    edited.after(5)
    second = edited.git("rev-parse", "HEAD")
    assert [e["attributes"]["commit"] for e in edited.named("edit.commit")] == [first, second]
    assert edited.named("edit.commit")[-1]["attributes"]["rewritten_from"] == first
    assert rates(edited.survival("5")) == WHOLE


def test_rebase(committed) -> None:
    desk = committed
    desk.git("switch", "-q", "main")
    desk.write("calc.py", desk.BASE.replace("import os\n", "import os\nimport sys\n"))
    desk.commit("elsewhere", "calc.py")
    desk.git("switch", "-q", "feature")
    desk.git("rebase", "-q", "main")
    desk.look()
    desk.after(5)
    facts = desk.survival("5")
    assert rates(facts) == WHOLE and facts["did_branch_change"] == 0
    assert desk.named("edit.commit")[-1]["attributes"]["commit"] == desk.git("rev-parse", "HEAD")


def test_a_rebase_that_stops_is_censored(committed) -> None:
    desk = committed
    desk.git("switch", "-q", "main")
    desk.write("calc.py", desk.BASE.replace("total -= value", "total -= 2 * value"))
    desk.commit("conflict", "calc.py")
    desk.git("switch", "-q", "feature")
    desk.git("rebase", "-q", "main", check=False)
    desk.after(5)
    assert desk.survival("5")["censored"] == "rebase_in_progress"
    desk.git("rebase", "--abort")
    desk.after(25)
    assert rates(desk.survival("30")) == WHOLE


def test_squash_into_main(committed) -> None:
    desk = committed
    desk.write("other.py", "def other():\n    return 3\n")
    desk.commit("more")
    desk.git("switch", "-q", "main")
    desk.git("merge", "-q", "--squash", "feature")
    desk.commit("squashed")
    desk.git("branch", "-q", "-D", "feature")
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE
    assert desk.named("edit.commit")[-1]["attributes"]["commit"] == desk.git("rev-parse", "HEAD")


def test_squash_by_an_interactive_rebase(committed) -> None:
    desk = committed
    desk.write("other.py", "def other():\n    return 3\n")
    desk.commit("more")
    desk.git("reset", "-q", "--soft", "HEAD~2")
    desk.git("commit", "-q", "-m", "one")
    desk.look()
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE
    assert "edit_reverted" not in desk.signals


def test_squash_by_autosquash(committed) -> None:
    desk = committed
    desk.write("calc.py", desk.PROPOSED.replace("hello", "good day"))
    desk.git("commit", "-q", "-a", "--fixup", "HEAD")
    desk.git("-c", "sequence.editor=true", "rebase", "-q", "-i", "--autosquash", "main")
    desk.look()
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE
    assert desk.named("edit.commit")[-1]["attributes"]["commit"] == desk.git("rev-parse", "HEAD")


def test_a_rebase_begun_on_another_branch_returns_home(committed) -> None:
    desk = committed
    desk.git("switch", "-q", "main")
    desk.write("other.py", "def other():\n    return 6\n")
    desk.commit("main goes on")
    desk.git("rebase", "-q", "main", "feature")
    desk.look()
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE


def test_pull_by_rebase(committed, tmp_path) -> None:
    desk = committed
    desk.git("clone", "-q", "--bare", ".", str(tmp_path / "far.git"))
    desk.git("remote", "add", "far", str(tmp_path / "far.git"))
    desk.git("clone", "-q", "-b", "feature", str(tmp_path / "far.git"), str(tmp_path / "mate"))
    for command in (["commit", "-q", "--allow-empty", "-m", "theirs"], ["push", "-q"]):
        subprocess.run(["git", "-C", str(tmp_path / "mate"), *command], check=True)
    desk.write("other.py", "def other():\n    return 7\n")
    desk.commit("mine")
    desk.git("pull", "-q", "--rebase", "far", "feature")
    desk.look()
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE


@pytest.mark.parametrize("has_work", [True, False])
def test_a_rebase_that_ends_elsewhere_is_a_branch_change(committed, has_work) -> None:
    desk = committed
    desk.git("switch", "-q", "-c", "other", "main")
    desk.git("commit", "-q", "--allow-empty", "-m", "other work")
    if has_work:
        desk.git("switch", "-q", "main")
        desk.git("commit", "-q", "--allow-empty", "-m", "main goes on")
    desk.git("switch", "-q", "feature")
    desk.git("rebase", "-q", "main", "other")
    desk.look()
    desk.after(5)
    assert desk.survival("5")["censored"] == "branch_changed"
    assert "edit_reverted" not in desk.signals


def test_a_renamed_branch_is_the_same_home(desk) -> None:
    desk.git("switch", "-q", "-c", "feature")
    desk.write("other.py", "def other():\n    return 8\n")
    desk.commit("mine")
    desk.agent("calc.py", desk.PROPOSED)
    desk.git("branch", "-m", "feature", "better-name")
    desk.git("switch", "-q", "main")
    desk.after(5)
    assert desk.survival("5")["censored"] == "branch_changed"
    desk.git("switch", "-q", "better-name")
    desk.after(25)
    assert rates(desk.survival("30")) == WHOLE


def test_a_branch_that_has_the_lines_anyway_is_another_branch(committed) -> None:
    desk = committed
    desk.git("switch", "-q", "main")
    desk.write("other.py", "def other():\n    return 9\n")
    desk.git("commit", "-q", "-a", "-m", "main goes on")
    desk.git("cherry-pick", "feature")
    desk.git("switch", "-q", "feature")
    desk.git("switch", "-q", "main")
    desk.after(5)
    assert desk.survival("5")["censored"] == "branch_changed"


def test_bisecting_is_being_away(committed) -> None:
    desk = committed
    desk.git("commit", "-q", "--allow-empty", "-m", "more")
    desk.git("bisect", "start", "HEAD", "main~0")
    desk.git("bisect", "reset")
    desk.git("checkout", "-q", "HEAD~2")
    desk.after(5)
    assert desk.survival("5")["censored"] == "branch_changed"
    desk.git("checkout", "-q", "feature")
    desk.after(25)
    assert rates(desk.survival("30")) == WHOLE


def test_merge_into_main(committed) -> None:
    desk = committed
    desk.git("switch", "-q", "main")
    desk.write("other.py", "def other():\n    return 4\n")
    desk.commit("main goes on")
    desk.git("merge", "-q", "--no-edit", "feature")
    desk.look()
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE


def test_cherry_pick_to_main(committed) -> None:
    desk = committed
    desk.git("switch", "-q", "main")
    desk.write("other.py", "def other():\n    return 5\n")
    desk.commit("main goes on")
    desk.git("cherry-pick", "feature")
    desk.look()
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE


def test_stash_is_censored_and_pop_is_not(edited) -> None:
    edited.git("stash", "-q")
    edited.after(5)
    assert edited.survival("5")["censored"] == "stashed"
    assert not edited.signals
    edited.git("stash", "pop", "-q")
    edited.after(25)
    assert rates(edited.survival("30")) == WHOLE


def test_stash_of_a_new_file(desk) -> None:
    desk.agent("new.py", "def fresh():\n    return 1\n")
    desk.git("stash", "-q", "-u")
    desk.after(5)
    assert desk.survival("5")["censored"] == "stashed"


def test_a_dropped_stash_is_a_revert(edited) -> None:
    edited.git("stash", "-q")
    edited.git("stash", "drop", "-q")
    edited.after(5)
    assert edited.survival("5")["survival_rate_no_revert"] == 0.0


def test_git_mv(edited) -> None:
    edited.git("mv", "calc.py", "sums.py")
    edited.after(5)
    assert rates(edited.survival("5")) == WHOLE
    commit = edited.commit("moved")
    assert rates(edited.survival("commit")) == WHOLE
    edited.after(25)
    assert rates(edited.survival("30")) == WHOLE
    assert edited.named("edit.commit")[-1]["attributes"]["commit"] == commit


def test_a_move_without_git_mv(edited) -> None:
    (edited.root / "pkg").mkdir()
    shutil.move(edited.root / "calc.py", edited.root / "pkg" / "arithmetic.py")
    edited.after(5)
    assert rates(edited.survival("5")) == WHOLE


def test_a_function_moved_to_another_file(desk) -> None:
    desk.agent("calc.py", desk.BASE + "\n\n" + BODY)
    desk.write("calc.py", desk.BASE)
    desk.write("other.py", "def other():\n    return 1\n\n\n" + BODY)
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE


def test_a_function_moved_within_the_file(desk) -> None:
    desk.agent("calc.py", desk.BASE + "\n\n" + BODY)
    desk.write("calc.py", BODY + "\n\n" + desk.BASE)
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE


def test_reformatting_is_no_edit(desk, ruff) -> None:
    wide = desk.BASE.replace(
        "        total -= value\n",
        "        total += combine(value, weight=weights.get(value, 1), scale = SCALES [ value ], k='a')\n",
    )
    desk.agent("calc.py", wide)
    subprocess.run([ruff, "format", "-q", "--line-length", "40", "calc.py"], cwd=desk.root, check=True)
    assert (desk.root / "calc.py").read_text().count("\n") > wide.count("\n")
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE
    desk.after(895)
    assert desk.signals == ["edit_kept"]


def test_reformatting_and_an_edit_elsewhere(desk, ruff) -> None:
    wide = desk.BASE.replace(
        "total -= value", "total += combine(value, weight=weights.get(value), label='sum')"
    )
    desk.agent("calc.py", wide)
    desk.write("calc.py", wide.replace('"hello "', '"good day "'))
    subprocess.run([ruff, "format", "-q", "--line-length", "40", "calc.py"], cwd=desk.root, check=True)
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE


def test_an_indentation_that_changes_the_meaning_is_an_edit(edited) -> None:
    edited.write(
        "calc.py",
        edited.PROPOSED.replace(
            "            continue\n        total", "            continue\n            total"
        ),
    )
    edited.after(900)
    assert edited.signals == ["edit_edited"]


def test_the_agents_own_formatter_is_no_edit(desk, ruff) -> None:
    wide = desk.BASE.replace("total -= value", "total += combine(value, weight = weights.get(value))")
    desk.agent("calc.py", wide)
    subprocess.run([ruff, "format", "-q", "--line-length", "40", "calc.py"], cwd=desk.root, check=True)
    formatted = (desk.root / "calc.py").read_text()
    desk.write("calc.py", wide)
    desk.agent("calc.py", formatted, turn=3)
    assert [e["attributes"]["reason"] for e in desk.named("edit.skipped")] == ["formatting"]
    desk.after(900)
    assert not desk.named("edit.superseded") and desk.signals == ["edit_kept"]


def test_formatting_within_an_edit_does_not_write_over_another(edited) -> None:
    other = edited.PROPOSED.replace('"hello " + name', "greeting_of(name)")
    edited.clock.at += 1
    edited.agent("calc.py", other.replace("abs(value) * scale_of(value)", "abs( value )*scale_of( value )"))
    assert not edited.named("edit.superseded")
    edited.after(900)
    assert edited.signals == ["edit_kept", "edit_kept"]


def test_windows_newlines_are_no_edit(edited) -> None:
    (edited.root / "calc.py").write_bytes(edited.PROPOSED.replace("\n", "\r\n").encode())
    edited.after(5)
    assert rates(edited.survival("5")) == WHOLE


def test_revert_of_the_commit(edited) -> None:
    edited.commit("agent")
    edited.git("revert", "--no-edit", "HEAD")
    edited.look()
    assert edited.signals == ["edit_kept", "edit_reverted"]
    edited.after(5)
    assert edited.survival("5")["survival_rate_no_revert"] == 0.0


COMMON = "    kwargs = dict(kwargs)\n    return None\n"


def test_a_reverted_edit_does_not_live_on_in_lines_that_always_stood_elsewhere(desk) -> None:
    """An unrelated commit touches a file that held the same lines before the edit was made."""
    desk.write("other.py", "def other(**kwargs):\n" + COMMON)
    desk.commit("before the edit")
    desk.agent("calc.py", desk.BASE.replace("    total = 0\n", COMMON + "    total = 0\n"))
    desk.commit("agent")
    desk.git("revert", "--no-edit", "HEAD")
    desk.after(5)
    assert desk.signals == ["edit_kept", "edit_reverted"]
    desk.write("other.py", "import os\n\n\ndef other(**kwargs):\n" + COMMON)
    desk.commit("unrelated")
    desk.after(25)
    assert desk.survival("30")["verdict"] == "reverted" and desk.survival("30")["lines_left"] == 0
    assert desk.signals == ["edit_kept", "edit_reverted"]


def test_lines_that_others_had_not_committed_did_not_move_there(desk) -> None:
    desk.write("other.py", BODY)
    desk.write("new.py", BODY)
    desk.agent("calc.py", desk.BASE + "\n\n" + BODY)
    desk.write("calc.py", desk.BASE)
    desk.after(5)
    assert rates(desk.survival("5")) == NOTHING


def test_a_common_line_written_elsewhere_after_a_revert_is_not_the_edit(desk) -> None:
    desk.agent("calc.py", desk.BASE.replace("    total = 0\n", COMMON + "    total = 0\n"))
    desk.write("calc.py", desk.BASE)
    desk.write("other.py", "def other(**kwargs):\n" + COMMON)
    desk.after(5)
    assert desk.signals == ["edit_reverted"]


def test_lines_that_a_later_edit_writes_elsewhere_are_its_own(desk) -> None:
    desk.agent("calc.py", desk.BASE + "\n\n" + BODY)
    desk.write("calc.py", desk.BASE)
    desk.clock.at += 4
    desk.agent("other.py", "def other():\n    return 1\n\n\n" + BODY, turn=5)
    desk.after(5)
    assert desk.signals == ["edit_reverted"]
    desk.after(900)
    assert desk.signals == ["edit_reverted", "edit_kept"]


def test_a_block_that_is_cut_and_pasted_later_is_put_back(desk) -> None:
    desk.agent("calc.py", desk.BASE + "\n\n" + BODY)
    desk.write("calc.py", desk.BASE)
    desk.after(5)
    desk.write("other.py", "def other():\n    return 1\n\n\n" + BODY)
    desk.after(25)
    assert desk.signals == ["edit_reverted", "edit_kept"]


def test_a_hard_reset_is_a_revert(edited) -> None:
    edited.commit("agent")
    edited.git("reset", "-q", "--hard", "HEAD~1")
    edited.look()
    assert edited.signals == ["edit_kept", "edit_reverted"]


# Censoring


def test_another_branch_is_censored_and_coming_home_is_not(committed) -> None:
    desk = committed
    desk.git("switch", "-q", "main")
    desk.after(5)
    facts = desk.survival("5")
    assert facts["censored"] == "branch_changed" and facts["did_branch_change"] == 1
    assert "survival_rate_four_gram" not in facts
    desk.git("switch", "-q", "feature")
    desk.after(25)
    assert rates(desk.survival("30")) == WHOLE
    assert "edit_reverted" not in desk.signals


def test_a_revert_on_the_new_branch_is_noticed(edited) -> None:
    """A branch that is made at the same commit is still the home."""
    edited.git("switch", "-q", "-c", "try")
    edited.git("checkout", "-q", "--", "calc.py")
    edited.after(5)
    assert edited.survival("5")["survival_rate_no_revert"] == 0.0


def test_a_detached_head_at_another_commit_is_censored(edited) -> None:
    edited.commit("agent")
    edited.git("checkout", "-q", "--detach", "HEAD~1")
    edited.after(5)
    assert edited.survival("5")["censored"] == "branch_changed"


def test_windows_nobody_looked_at_are_missed_and_not_zero(edited) -> None:
    edited.after(700)
    assert [edited.survival(w).get("censored") for w in ("5", "30", "120", "300")] == ["missed"] * 4
    assert rates(edited.survival("600")) == WHOLE


def test_future_windows_are_not_reported(edited) -> None:
    assert {e["attributes"]["window"] for e in edited.named("edit.survival")} == {"0"}


def test_an_agents_own_correction_is_no_revert(edited) -> None:
    edited.clock.at += 3
    edited.agent("calc.py", edited.BASE, turn=3)
    assert len(edited.named("edit.superseded")) == 1
    edited.after(900)
    assert edited.signals == ["edit_kept"]
    assert edited.named("edit.proposed")[1]["turn"] == 3


def test_the_verdict_before_the_agent_wrote_again_is_reported(edited) -> None:
    edited.after(900)
    edited.write("calc.py", edited.BASE)
    edited.clock.at += 60
    edited.agent("calc.py", edited.PROPOSED.replace("abs(value)", "float(value)"), turn=5)
    assert edited.signals == ["edit_kept", "edit_reverted"]


def test_the_commit_is_the_one_that_brought_the_lines(edited) -> None:
    first = edited.git("commit", "-q", "-a", "-m", "agent") or edited.git("rev-parse", "HEAD")
    edited.write("calc.py", edited.PROPOSED.replace("hello", "good day"))
    edited.git("commit", "-q", "-a", "-m", "mine")
    edited.look()
    assert [e["attributes"]["commit"] for e in edited.named("edit.commit")] == [first]


def test_two_edits_in_one_file_live_side_by_side(edited) -> None:
    edited.clock.at += 3
    edited.agent("calc.py", edited.PROPOSED.replace('"hello "', '"good morning, dear " + title(name) + " "'))
    edited.after(900)
    assert edited.signals == ["edit_kept", "edit_kept"]
    edited.write("calc.py", edited.PROPOSED)
    edited.after(3_600)
    assert edited.signals == ["edit_kept", "edit_kept", "edit_reverted"]


def test_a_removed_worktree_is_censored(desk) -> None:
    from ostinato.edits.capture.hook_command import record_edit

    desk.git("worktree", "add", "-q", "../second")
    second = desk.root.parent / "second"
    (second / "calc.py").write_text(desk.PROPOSED)
    event = {"session_id": "s9", "cwd": str(second), "path": "calc.py"}
    texts = {"before": desk.BASE, "after": desk.PROPOSED}
    assert record_edit(event | texts, at=desk.clock.now(), start_reporter=False)
    desk.after(0)
    assert rates(desk.survival("0")) == WHOLE
    desk.git("worktree", "remove", "--force", "../second")
    desk.after(5)
    assert desk.survival("5")["censored"] == "worktree_gone"


def test_a_repository_without_commits(tmp_path, desk) -> None:
    root = tmp_path / "young"
    root.mkdir()
    desk.git("init", "-q", str(root))
    young = type(desk)(**{n: getattr(desk, n) for n in ("clock", "gateway")}, **at(root, desk))
    young.agent("a.py", "def first():\n    return 1\n")
    young.after(5)
    assert rates(young.survival("5")) == WHOLE
    young.commit("first")
    assert rates(young.survival("commit")) == WHOLE


def at(root, desk):
    from ostinato.edits.install.git_hooks import find, install
    from ostinato.edits.report.reporter import EditReporter
    from ostinato.web.joined import Joined

    repo = find(root)
    install(repo)
    reporter = EditReporter(repo, desk.clock, Joined(url="", key=""), desk.gateway)
    return {"root": root, "repo": repo, "reporter": reporter}


def test_without_reflogs_the_branch_name_decides(tmp_path, desk) -> None:
    desk.git("config", "core.logAllRefUpdates", "false")
    shutil.rmtree(desk.root / ".git" / "logs")
    desk.agent("calc.py", desk.PROPOSED)
    desk.git("switch", "-q", "-c", "away")
    desk.after(5)
    assert desk.survival("5")["censored"] == "branch_changed"


@pytest.mark.parametrize(
    ("content", "why"), [(b"\0\1\2", "binary"), (b"\xff\xfe", "binary"), (b"x\n" * 3_000_000, "large")]
)
def test_an_edit_that_cannot_be_followed_is_counted(desk, content, why) -> None:
    from ostinato.edits.capture import spool

    (desk.root / "blob").write_bytes(content)
    assert spool.content(str(desk.root / "blob")) == (None, why)


def test_a_text_too_large_is_counted(desk) -> None:
    desk.agent("large.txt", "x\n" * 3_000_000)
    assert [e["attributes"]["reason"] for e in desk.named("edit.skipped")] == ["large"]
    assert not desk.named("edit.proposed")


def test_ignored_files_are_counted(desk) -> None:
    desk.write(".gitignore", ".env\n")
    desk.agent(".env", "TOKEN=abc\n")
    assert [e["attributes"]["reason"] for e in desk.named("edit.skipped")] == ["ignored"]


# Relatives


def test_two_agents_in_one_file_each_have_their_own_outcome(desk) -> None:
    desk.agent("calc.py", desk.BASE.replace("return x[1]", "return median_of(x, default=None)"), session="s1")
    desk.clock.at += 3
    both = (desk.root / "calc.py").read_text().replace('"hello " + name', "greeting_for(name, polite=True)")
    desk.agent("calc.py", both, session="s2")
    desk.write("calc.py", both.replace("return median_of(x, default=None)", "return x[1]"))
    desk.after(900)
    told = {(entry["session_id"], entry["kind"]) for entry in desk.journal if "kind" in entry}
    assert told == {("s1", "edit_reverted"), ("s2", "edit_kept")}


def test_an_edit_made_twice_is_two_edits(desk) -> None:
    """The developer reverts an edit and the agent repeats it: the first stays reverted."""
    desk.agent("calc.py", desk.PROPOSED, turn=2)
    desk.write("calc.py", desk.BASE)
    desk.after(5)
    desk.agent("calc.py", desk.PROPOSED, turn=4)
    desk.after(900)
    told = [(entry["turn"], entry["kind"]) for entry in desk.journal if "kind" in entry]
    assert told == [(2, "edit_reverted"), (4, "edit_kept")]
    assert len({entry["edit"] for entry in desk.journal if "kind" in entry}) == 2


def test_a_file_without_a_newline_at_its_end(desk) -> None:
    desk.write("calc.py", desk.BASE.rstrip("\n"))
    desk.commit("no newline")
    desk.agent("calc.py", desk.BASE.rstrip("\n") + "\n\n\n" + BODY.rstrip("\n"))
    (desk.root / "calc.py").write_text((desk.root / "calc.py").read_text() + "\n")
    desk.after(900)
    assert desk.signals == ["edit_kept"]
    desk.write("calc.py", desk.BASE.rstrip("\n"))
    desk.after(3_600)
    assert desk.signals == ["edit_kept", "edit_reverted"]


def test_a_renamed_directory_takes_the_edit_along(desk) -> None:
    desk.write("pkg/calc.py", desk.BASE)
    desk.commit("package")
    desk.agent("pkg/calc.py", desk.PROPOSED)
    desk.commit("agent")
    (desk.root / "pkg").rename(desk.root / "library")
    desk.after(5)
    desk.commit("renamed")
    desk.after(900)
    assert rates(desk.survival("900")) == WHOLE and desk.signals == ["edit_kept"]
    desk.write("library/calc.py", desk.BASE)
    desk.after(3_600)
    assert desk.signals == ["edit_kept", "edit_reverted"]


def test_a_block_moved_out_of_a_file_that_is_then_deleted(desk) -> None:
    desk.agent("calc.py", desk.BASE + "\n\n" + BODY)
    desk.write("other.py", "def other():\n    return 1\n\n\n" + BODY)
    (desk.root / "calc.py").unlink()
    desk.after(900)
    assert desk.signals == ["edit_kept"]


def test_in_a_shallow_clone(desk, tmp_path) -> None:
    for number in range(3):
        desk.write("other.py", f"x = {number}\n")
        desk.commit(f"{number}")
    desk.git("clone", "-q", "--depth", "1", f"file://{desk.root}", str(tmp_path / "shallow"))
    shallow = type(desk)(clock=desk.clock, gateway=desk.gateway, **at(tmp_path / "shallow", desk))
    shallow.agent("calc.py", desk.PROPOSED)
    shallow.commit("agent")
    shallow.git("revert", "--no-edit", "HEAD")
    shallow.after(5)
    assert shallow.signals == ["edit_kept", "edit_reverted"]


def test_in_a_submodule(desk, tmp_path) -> None:
    desk.git("clone", "-q", str(desk.root), str(tmp_path / "library"))
    desk.git("submodule", "add", "-q", str(tmp_path / "library"), "library")
    desk.commit("submodule")
    inner = type(desk)(clock=desk.clock, gateway=desk.gateway, **at(desk.root / "library", desk))
    inner.agent("calc.py", desk.PROPOSED)
    inner.after(5)
    assert rates(inner.survival("5")) == WHOLE
    inner.write("calc.py", desk.BASE)
    inner.after(25)
    assert inner.signals == ["edit_reverted"] and not desk.named("edit.proposed")


def test_on_a_detached_head_it_is_followed_where_it_was_made(desk) -> None:
    desk.git("checkout", "-q", "--detach")
    desk.agent("calc.py", desk.PROPOSED)
    desk.commit("agent")
    desk.after(5)
    assert rates(desk.survival("5")) == WHOLE
    desk.git("reset", "-q", "--hard", "HEAD~1")
    desk.after(25)
    assert desk.signals == ["edit_kept", "edit_reverted"]


def test_a_removed_repository_ends_the_reporter_without_a_sound(edited) -> None:
    from ostinato.edits.report.reporter import main

    shutil.rmtree(edited.root)
    assert main([str(edited.root)]) == 1
