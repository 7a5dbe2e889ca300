from pathlib import Path

import pytest

from ostinato.loop.run import RunError, open_run, write_whole

CONFIG = "seed = 1\n"


def test_a_new_folder_starts_afresh(tmp_path: Path) -> None:
    run, resumed = open_run(tmp_path / "demo", CONFIG, fresh=False)
    assert not resumed
    assert run.config.read_text() == CONFIG


def test_an_unfinished_run_is_resumed(tmp_path: Path) -> None:
    run, _ = open_run(tmp_path / "demo", CONFIG, fresh=False)
    run.finish_stage("teach", {"sessions": 3})
    again, resumed = open_run(tmp_path / "demo", CONFIG, fresh=False)
    assert resumed
    assert again.stage("teach") == {"sessions": 3}
    assert again.stage("before") is None


@pytest.mark.parametrize(("config", "fresh"), [(CONFIG, True), ("seed = 2\n", False)])
def test_other_settings_or_fresh_forget_the_old_run(tmp_path: Path, config: str, fresh: bool) -> None:
    run, _ = open_run(tmp_path / "demo", CONFIG, fresh=False)
    run.finish_stage("teach", {})
    again, resumed = open_run(tmp_path / "demo", config, fresh=fresh)
    assert not resumed
    assert again.stage("teach") is None


def test_a_finished_run_starts_afresh(tmp_path: Path) -> None:
    run, _ = open_run(tmp_path / "demo", CONFIG, fresh=False)
    write_whole(run.report, "{}")
    assert not open_run(tmp_path / "demo", CONFIG, fresh=False)[1]


def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="holds something else"):
        open_run(tmp_path, CONFIG, fresh=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_half_written_stage_does_not_count(tmp_path: Path) -> None:
    run, _ = open_run(tmp_path / "demo", CONFIG, fresh=False)
    (run.directory / "stages").mkdir()
    (run.directory / "stages" / "teach.json.part").write_text('{"sess')
    assert run.stage("teach") is None
