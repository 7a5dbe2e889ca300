"""Covers loop/folder.py, loop/run.py and loop/people.py: what people left stays."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.builders import session, start_python

from ostinato.config import ConfigError, load
from ostinato.loop.config import BenchConfig, RunConfig, ScheduleConfig
from ostinato.loop.folder import Opened, OwnedError, RunError, open_run, owned
from ostinato.loop.live_config import LiveConfig
from ostinato.loop.placement.config import EnginesConfig
from ostinato.loop.results import Published, Taught
from ostinato.loop.run import Run, write_whole
from ostinato.store import StoreError

CONFIG = RunConfig()
LESSONS = Taught(sessions=3, void=0, left_out=0)
OWN = """
import sys
from pathlib import Path
from ostinato.loop.folder import owned
with owned(Path(sys.argv[1]), "serve"):
    print("owned", flush=True)
    sys.stdin.readline()
"""
HOLD_OPEN = """
import sys
from ostinato.store import Store
store = Store.open(sys.argv[1])
store.sessions()
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Run]:
    with owned(tmp_path / "demo", "demo") as owner:
        yield owner


def finished(owner: Run) -> Run:
    """A run that has its report."""
    run = open_run(owner, CONFIG, fresh=False).run
    run.finish("teach", LESSONS, 1.0)
    write_whole(run.report, "{}")
    return run


def aside(opened: Opened) -> Path:
    (found,) = opened.run.directory.parent.glob("demo-*")
    assert opened.notice.endswith(f"what lay there is in {found}")
    return found


def test_a_new_folder_starts_afresh(owner: Run) -> None:
    opened = open_run(owner, CONFIG, fresh=False)
    assert not opened.resumed and opened.notice.startswith("starts afresh")
    assert load(RunConfig, opened.run.config) == CONFIG


def test_an_unfinished_run_is_resumed(owner: Run) -> None:
    open_run(owner, CONFIG, fresh=False).run.finish("teach", LESSONS, 1.0)
    again = open_run(owner, CONFIG, fresh=False)
    assert again.resumed
    assert again.run.result("teach", Taught) == LESSONS
    assert again.run.result("before", Taught) is None


@pytest.mark.parametrize("config", [CONFIG, RunConfig(seed=2)])
def test_a_finished_run_and_one_of_other_settings_are_moved_aside(owner: Run, config: RunConfig) -> None:
    run = finished(owner)
    with_people = run.open_store()
    with_people.add_key("9f", "ada")
    with_people.start_session(session("s1", user="ada"))
    with_people.close()
    opened = open_run(owner, config, fresh=False)
    assert not opened.resumed and opened.run.result("teach", Taught) is None
    kept = Run(directory=aside(opened))
    assert kept.result("teach", Taught) == LESSONS and kept.open_store().session("s1") is not None


def test_a_finished_run_goes_on_when_its_schedule_has_more_to_do(owner: Run) -> None:
    finished(owner)
    more = replace(CONFIG, schedule=ScheduleConfig(cycles=2), engine=EnginesConfig(slots=8))
    assert open_run(owner, more, fresh=False).resumed
    assert load(RunConfig, owner.config) == more
    with pytest.raises(RunError, match="unfinished run with other settings of seed"):
        open_run(owner, replace(more, seed=2), fresh=False)


def test_a_longer_schedule_that_was_begun_and_killed_goes_on(owner: Run) -> None:
    """The report that lay there was on the shorter schedule."""
    finished(owner)
    more = replace(CONFIG, schedule=ScheduleConfig(cycles=2))
    for _ in range(3):
        assert open_run(owner, more, begins=False).resumed
    assert owner.result("teach", Taught) == LESSONS
    write_whole(owner.report, "{}")
    with pytest.raises(RunError, match="demo has nothing left to do for 2 cycles: give more with --cycles"):
        open_run(owner, more, begins=False)
    assert owner.result("teach", Taught) == LESSONS and owner.report.exists()


def test_an_unfinished_run_of_other_settings_is_neither_mixed_nor_lost(owner: Run) -> None:
    run = open_run(owner, CONFIG, fresh=False).run
    run.finish("teach", LESSONS, 1.0)
    other = replace(CONFIG, seed=2, bench=BenchConfig(passes=3))
    with pytest.raises(RunError, match="unfinished run with other settings of bench, seed: change them back"):
        open_run(owner, other, fresh=False)
    assert load(RunConfig, owner.config) == CONFIG and run.result("teach", Taught) == LESSONS
    assert not open_run(owner, other, fresh=True).resumed and run.result("teach", Taught) is None


def test_cycles_of_an_earlier_form_are_refused_with_what_to_do(owner: Run) -> None:
    """Each took its own candidate to people; to go on would leave some of its stages out."""
    run = open_run(owner, CONFIG, fresh=False).run
    run.finish("cycle-1/collect", LESSONS, 1.0)
    with pytest.raises(RunError, match=r"cycle-1 is a cycle of an earlier release.* begin anew in another"):
        open_run(owner, CONFIG, fresh=False)
    assert open_run(owner, CONFIG, fresh=True).run == run


def test_the_live_traffic_may_change_between_two_cycles(owner: Run) -> None:
    run = open_run(owner, CONFIG, fresh=False).run
    other = replace(CONFIG, live=LiveConfig(sessions=80))
    assert open_run(owner, other, fresh=False).resumed
    run.finish("cycle-1/began", LESSONS, 1.0)
    with pytest.raises(RunError, match="with other settings of live"):
        open_run(owner, CONFIG, fresh=False)
    run.finish("cycle-1", LESSONS, 1.0)
    assert open_run(owner, CONFIG, fresh=False).resumed


def test_the_gateway_may_move_within_a_cycle(owner: Run) -> None:
    """Its settings are written by the first cycle, and by `ostinato team add` with the team's own port."""
    run = open_run(owner, CONFIG, fresh=False).run
    run.finish("cycle-1/began", LESSONS, 1.0)
    moved = replace(CONFIG.live, host="0.0.0.0", port=8080, address="https://models.example")
    assert open_run(owner, replace(CONFIG, live=moved), fresh=False).resumed
    assert open_run(owner, CONFIG, fresh=False).resumed


def test_fresh_deletes_a_run_of_simulated_people_and_says_so(owner: Run) -> None:
    run = finished(owner)
    store = run.open_store()
    store.accounts.set_consent(user="dev-0", granted=True, by="simulation")
    for user in ("dev-0", "practice"):
        store.add_key(user, user)
    store.start_session(session("s1", user="dev-0"))
    store.close()
    opened = open_run(owner, CONFIG, fresh=True)
    assert opened.notice.endswith("deleted the run that lay there, with 1 finished stages")
    assert not run.store_path.exists() and not list(owner.directory.parent.glob("demo-*"))


@pytest.mark.parametrize("left", ["1 keys", "1 words on consent", "1 live sessions"])
def test_fresh_deletes_nothing_that_people_left(owner: Run, left: str) -> None:
    store = finished(owner).open_store()
    if left == "1 keys":
        store.add_key("9f", "ada")
    elif left == "1 words on consent":
        store.accounts.set_consent(user="ada", granted=False, by="ada")
    else:
        store.start_session(session("s1", user="ada"))
    store.close()
    with pytest.raises(RunError, match=f"holds {left}, which --fresh does not delete"):
        open_run(owner, CONFIG, fresh=True)
    assert Run(directory=owner.directory).result("teach", Taught) == LESSONS


def test_fresh_does_not_delete_what_it_cannot_read(owner: Run) -> None:
    finished(owner).store_path.write_bytes(b"a letter to ada\n" * 64)
    with pytest.raises(StoreError, match="not a database"):
        open_run(owner, CONFIG, fresh=True)


@pytest.mark.parametrize("fresh", [True, False])
def test_a_store_that_is_open_is_neither_moved_nor_deleted(owner: Run, fresh: bool) -> None:
    path = finished(owner).store_path
    with start_python(HOLD_OPEN, path) as gateway:
        assert gateway.stdout is not None and gateway.stdout.readline() == "open\n"
        with pytest.raises(RunError, match="is open in another process"):
            open_run(owner, CONFIG, fresh=fresh)
        gateway.communicate("go\n")
    assert not open_run(owner, CONFIG, fresh=fresh).resumed


def test_a_folder_has_one_owner_for_as_long_as_that_lives(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with start_python(OWN, folder) as first:
        assert first.stdout is not None and first.stdout.readline() == "owned\n"
        told = f"is in use by ostinato serve, process {first.pid}: stop that first"
        with pytest.raises(OwnedError, match=told), owned(folder, "demo"):
            pass
        first.kill()
    with owned(folder, "demo") as owner:
        assert owner.directory == folder


def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with owned(tmp_path, "demo") as owner, pytest.raises(RunError, match="holds something else"):
        open_run(owner, CONFIG, fresh=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_result_that_is_no_result_of_its_stage_is_refused_by_file_and_key(owner: Run) -> None:
    run = open_run(owner, CONFIG, fresh=False).run
    run.finish("teach", LESSONS, 1.0)
    assert run.seconds() == {"teach": 1.0}
    with pytest.raises(ConfigError, match=r"stages/teach.json: unknown key 'sessions'"):
        run.result("teach", Published)
    write_whole(run.directory / "stages" / "teach.json", '{"seconds": 1.0, "result": {"sessions": "many"}}')
    with pytest.raises(ConfigError, match=r"stages/teach.json: sessions: expected int, got 'many'"):
        run.result("teach", Taught)


def test_a_half_written_stage_does_not_count(owner: Run) -> None:
    run = open_run(owner, CONFIG, fresh=False).run
    (run.directory / "stages").mkdir()
    (run.directory / "stages" / "teach.json.part").write_text('{"sess')
    assert run.result("teach", Taught) is None
