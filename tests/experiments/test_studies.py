"""Each study runs, and its prediction can fail.

Covers experiments/__main__.py and every study that it lists: broken_calls, effort, hacks, k1,
normalisation, questions, stale_model, staleness, summaries, trees and visible_tests.
"""

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from experiments import __main__ as command_line
from experiments import chains, desk, hacks, questions, stale_model, summaries
from experiments.__main__ import STUDIES
from experiments.study import Study, carry_out, judged

SHORT = {"VERSIONS": 3, "HISTORY": 50, "PROMPTS": 20, "DRAWS": 2_000, "TRIAL": 30, "MEASURED": 40}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Studies of three versions, and models of three steps: enough to see that they run."""
    caches = (summaries.taught, summaries.practised, stale_model.practised, hacks.taught)
    monkeypatch.setattr(desk, "TEACH_STEPS", 3)
    monkeypatch.setattr(chains, "TEACH_STEPS", 3)
    for each in caches:
        each.cache_clear()
    for study in STUDIES.values():
        module = sys.modules[study.run.__module__]
        for name, value in SHORT.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    yield
    for each in caches:
        each.cache_clear()


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_every_arm_gives_finite_figures_that_its_seed_decides(study: Study) -> None:
    once, again = study.run(study.arms[0], 1), study.run(study.arms[0], 1)
    assert once == again and once.figures
    for arm in study.arms:
        outcome = study.run(arm, 1)
        values = [*outcome.figures.values(), *(value for curve in outcome.curves.values() for value in curve)]
        assert all(map(math.isfinite, values))


@pytest.mark.deep
@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_three_versions_teach_nothing_so_that_some_claim_fails(study: Study) -> None:
    assert not all(judged(study, carry_out(study, (1, 2))).values())


def test_a_question_is_worth_its_answer_only_where_the_task_is_ambiguous() -> None:
    ours, naive = questions.worth(naive=False), questions.worth(naive=True)
    assert ours["ambiguous"] == pytest.approx(0.95) and ours["hard"] == pytest.approx(-0.05)
    assert naive["hard"] == pytest.approx(0.4), "the hack: a question is better than an edit that is reverted"


def test_the_command_prints_figures_and_draws_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["experiments", "visible_tests", "--seeds", "2", "--plots", str(tmp_path), "--json"]
    monkeypatch.setattr(sys, "argv", arguments)
    command_line.main()
    printed = capsys.readouterr().out
    assert "FAILED" in printed and '"study": "visible_tests"' in printed
    assert (tmp_path / "visible_tests.png").stat().st_size > 1_000


def test_an_unknown_study_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["experiments", "nothing"])
    with pytest.raises(SystemExit):
        command_line.main()
    assert "there is no study 'nothing': the studies are broken_calls" in capsys.readouterr().err
