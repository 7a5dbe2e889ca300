"""`ostinato plan cluster`. Covers planner/report.py: the tables and the JSON."""

import json
from pathlib import Path

import pytest

from ostinato.cli import main


def test_a_run_on_one_machine_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "cluster", "--model", "demo-quarter"]) == 0
    out = capsys.readouterr().out
    assert "practice" in out
    assert "demo.train_token_s" in out


def test_json_has_stages_sums_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "cluster", "--model", "demo-quarter", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cpu_s"] == pytest.approx(sum(stage["cpu_s"] for stage in found["stages"]))
    assert {row["origin"] for row in found["costs"]} <= {"measured", "published", "assumed"}


def test_an_unknown_model_is_named_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "cluster", "--model", "gpt"]) == 2
    err = capsys.readouterr().err
    assert "'gpt'" in err
    assert "1T-moe" in err
    assert "demo-quarter" in err


def test_a_week_of_a_cluster_has_phases_bytes_cost_and_what_a_change_buys(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["plan", "cluster", "--gpus", "h200:256", "--price", "2", "--plot", str(tmp_path / "week.svg")]
    assert main([*asked, "--json"]) == 0
    week = json.loads(capsys.readouterr().out)
    assert week["price"] == pytest.approx(2 * week["gpu_hours"])
    assert week["hours"] >= 7 * 24
    assert week["limit"] in week["phase_s"]
    assert week["effects"][0]["gain_s"] >= week["effects"][-1]["gain_s"]
    assert (tmp_path / "week.svg").stat().st_size > 1000
    assert main(["plan", "cluster", "--gpus", "h200:256"]) == 0
    assert "What limits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "said"),
    [("--cycle=5", "5h, 90m"), ("--trainers=1", "between 0 and 1"), ("--gpus=tpu:8", "h100")],
)
def test_a_wrong_option_is_said(option: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "cluster", option]) == 2
    assert said in capsys.readouterr().err
