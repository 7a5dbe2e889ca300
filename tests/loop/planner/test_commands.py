"""`ostinato plan cluster`. Covers loop/planner/report.py: the tables and the JSON."""

import json

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
    assert "demo-quarter" in err
