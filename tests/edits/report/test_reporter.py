"""The life of a reporter: its own schedule, and the state that survives its death."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ostinato.cli import main as hooks_main
from ostinato.edits.capture import spool
from ostinato.edits.capture.hook_command import record_edit
from ostinato.edits.capture.repository_paths import state_of
from ostinato.edits.follow.edit import load, opened, save
from ostinato.edits.follow.windows import LIVE_S, ManualClock
from ostinato.edits.install.git_hooks import install
from ostinato.edits.report.reporter import EditReporter, main, report
from ostinato.web.joined import Joined


def state(desk) -> Path:
    return Path(state_of(desk.repo))


def again(desk) -> EditReporter:
    """Return another reporter, as after a reboot."""
    return EditReporter(desk.repo, desk.clock, Joined(url="", key=""), desk.gateway)


def test_it_stays_for_fifteen_minutes_and_goes(desk) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    start = desk.clock.at
    desk.reporter.run()
    assert desk.clock.at - start == pytest.approx(LIVE_S, abs=1)
    windows = [e["attributes"]["window"] for e in desk.named("edit.survival")]
    assert windows == ["0", "5", "30", "120", "300", "600", "900"]
    assert all(
        e["attributes"]["time_delay_ms"] <= int(e["attributes"]["window"]) * 1000 + 600
        for e in desk.named("edit.survival")
    )


def test_a_clock_put_back_by_days_keeps_nobody_waiting(desk) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    desk.clock.at -= 500_000
    again(desk).run()
    assert not desk.clock.slept


def test_with_nothing_to_do_it_goes_at_once(desk) -> None:
    desk.reporter.run()
    assert not desk.clock.slept


def test_the_next_event_picks_up_windows_that_a_reboot_cut_off(desk) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    desk.clock.at += 90_000
    again(desk).tick()
    assert desk.survival("900")["censored"] == "missed"
    assert desk.survival("86400")["survival_rate_four_gram"] == 1.0


def test_an_edit_nobody_looked_at_for_a_month_is_closed(desk) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    desk.clock.at += 40 * 86_400
    desk.reporter.tick()
    assert desk.survival("604800")["censored"] == "missed"
    assert not opened(state(desk))


def test_reports_from_before_a_crash_are_not_contradicted_after_it(desk) -> None:
    """A crash came after the journal was written and before the edit's own file was."""
    desk.agent("calc.py", desk.PROPOSED)
    [path] = (state(desk) / "edits").glob("*.json")
    before = load(path)
    desk.after(5)
    save(state(desk), before)
    desk.write("calc.py", desk.BASE)
    again(desk).tick()
    assert len([e for e in desk.named("edit.survival") if e["attributes"]["window"] == "5"]) == 1
    assert desk.survival("5")["survival_rate_four_gram"] == 1.0


def test_an_event_taken_in_twice_counts_once(desk) -> None:
    event = {"session_id": "s1", "turn": 1, "cwd": str(desk.root), "path": "calc.py"}
    texts = {"before": desk.BASE, "after": desk.PROPOSED}
    desk.write("calc.py", desk.PROPOSED)
    record_edit(event | texts, at=desk.clock.at, start_reporter=False)
    [path] = spool.waiting(state_of(desk.repo))
    data = Path(path).read_bytes()
    desk.reporter.tick()
    Path(path).write_bytes(data)
    desk.reporter.tick()
    assert len(desk.named("edit.proposed")) == 1 and len(desk.named("edit.survival")) == 1


def test_a_file_that_holds_no_event_is_put_aside(desk) -> None:
    spool.put(state_of(desk.repo), {"kind": "odd"})
    (state(desk) / "inbox" / "0.json").write_bytes(b"{torn")
    desk.agent("calc.py", desk.PROPOSED)
    assert len(list((state(desk) / "bad").iterdir())) == 2
    assert len(desk.named("edit.proposed")) == 1
    assert "Traceback" in (state(desk) / "errors.log").read_text()


def test_nothing_is_looked_at_while_git_holds_the_index(desk) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    (desk.root / ".git" / "index.lock").touch()
    desk.write("calc.py", desk.BASE)
    desk.after(5)
    assert not [e for e in desk.named("edit.survival") if e["attributes"]["window"] == "5"]
    desk.write("calc.py", desk.PROPOSED)
    (desk.root / ".git" / "index.lock").unlink()
    desk.after(1)
    assert desk.survival("5")["survival_rate_four_gram"] == 1.0


def test_a_lock_that_a_crash_left_is_no_reason_to_wait(desk) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    lock = desk.root / ".git" / "index.lock"
    lock.touch()
    os.utime(lock, (desk.clock.at - 100, desk.clock.at - 100))
    desk.after(5)
    assert desk.survival("5")["survival_rate_four_gram"] == 1.0


def test_uninstalling_ends_it(desk) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    (state(desk) / "enabled").unlink()
    desk.reporter.run()
    assert not desk.clock.slept


def test_status_shows_followed_and_unsent_edits(desk, capsys, monkeypatch) -> None:
    monkeypatch.setattr(spool, "wake", lambda repo: None)
    desk.gateway.status = 503
    desk.agent("calc.py", desk.PROPOSED)
    desk.agent("large.txt", "x\n" * 3_000_000)
    assert hooks_main(["hooks", "status", "--directory", str(desk.root), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["recording"] and facts["followed"] == 1 and facts["git hooks"] == []
    assert facts["events"] == {"edit.proposed": 1, "edit.skipped": 1, "edit.survival": 1}
    assert facts["skipped"] == {"large": 1} and facts["unsent"] == 3 and "503" in facts["last error"]
    assert hooks_main(["hooks", "status", "--directory", str(desk.root)]) == 0
    assert "followed     1" in capsys.readouterr().out


def test_only_one_runs(desk) -> None:
    with spool.ReporterLock(state_of(desk.repo)) as is_free:
        assert is_free and not report(desk.repo, desk.clock)
    assert report(desk.repo, desk.clock)


def test_a_folder_that_did_not_ask_gets_none(tmp_path, desk) -> None:
    assert main([str(tmp_path)]) == 1
    (state(desk) / "enabled").unlink()
    assert main([str(desk.root)]) == 1


def test_settings_that_are_wrong_are_noted(desk, monkeypatch) -> None:
    monkeypatch.setenv("OSTINATO_URL", "nonsense")
    assert main([str(desk.root)]) == 1
    assert "set OSTINATO_URL" in (state(desk) / "errors.log").read_text()


def test_nothing_is_written_into_the_work_tree(desk) -> None:
    desk.agent("calc.py", desk.PROPOSED)
    desk.after(5)
    assert desk.git("status", "--porcelain").split() == ["M", "calc.py"]
    assert all(
        p.stat().st_mode & 0o77 == 0 for p in state(desk).rglob("*") if p.is_file() and p.name != "enabled"
    )


@pytest.mark.slow
def test_the_whole_path_with_git_and_processes(repo) -> None:
    """Real hooks start real reporters; one is killed, the next commit starts another."""
    from ostinato.edits.install.git_hooks import find

    paths = find(repo)
    install(paths)
    journal = Path(state_of(paths)) / "journal.jsonl"
    git(repo, "commit", "-q", "--allow-empty", "-m", "nothing")
    text = (repo / "calc.py").read_text()
    (repo / "calc.py").write_text(text.replace("-= value", "+= value"))
    event = {"hook_event_name": "edit.proposed", "session_id": "s1", "cwd": str(repo), "path": "calc.py"}
    told = event | {"before": text, "after": (repo / "calc.py").read_text()}
    command = [sys.executable, "-P", "-m", "ostinato", "hook", "--input", "stdin"]
    subprocess.run(command, input=json.dumps(told).encode(), check=True)
    wait_for(journal, "survival/0")
    reporter_dies(the_reporter(repo))
    git(repo, "commit", "-q", "-a", "-m", "agent")
    wait_for(journal, "edit_kept")
    reporter_dies(the_reporter(repo))


def git(root, *arguments):
    subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True)


def wait_for(journal, text) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if journal.exists() and text in journal.read_text():
            return
        time.sleep(0.05)
    raise AssertionError(f"{text} never came")


def the_reporter(root) -> int:
    """Return the reporter that stays: another one that started at the same moment ends."""
    until = time.monotonic() + 30
    while len(found := reporters(root)) != 1 and time.monotonic() < until:
        time.sleep(0.05)
    return found[0]


def reporters(root) -> list[int]:
    """Return the processes of this repository's reporter."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"ostinato.edits.report.reporter" in words and str(root).encode() in words:
            found.append(int(path.parent.name))
    return found


def reporter_dies(process) -> None:
    os.kill(process, signal.SIGKILL)
    until = time.monotonic() + 10
    while Path(f"/proc/{process}").exists() and time.monotonic() < until:
        if b"Z" in Path(f"/proc/{process}/stat").read_bytes().split()[2:3]:
            return
        time.sleep(0.02)


def test_a_manual_clock_passes_by_sleeping() -> None:
    clock = ManualClock(at=1.0)
    clock.sleep(2.0)
    assert clock.now() == 3.0


def test_the_log_has_the_reasons_for_refused_and_waiting_lines(desk) -> None:
    desk.gateway.statuses["/feedback"] = 404
    desk.agent("calc.py", desk.PROPOSED)
    desk.write("calc.py", desk.BASE)
    desk.after(6)
    [line] = (state(desk) / "errors.log").read_text().splitlines()
    assert line.endswith("gateway: refused 1, the first because /feedback answered 404: {}")
    desk.gateway.status = 503
    desk.clock.at += 60
    desk.look()
    desk.after(25)
    assert "gateway: the rest waits: /v1/events answered 503" in (state(desk) / "errors.log").read_text()
