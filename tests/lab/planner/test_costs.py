"""Unit costs and their sources."""

from pathlib import Path

import pytest

from ostinato_lab.planner.costs import Origin, PlanError, read_costs


def test_every_figure_has_one_source() -> None:
    costs = read_costs()
    assert {row.origin for row in costs} <= set(Origin)
    assert all(row.source and row.unit for row in costs)


@pytest.mark.parametrize(
    "row",
    [
        'x = {value = 1, unit = "s"}',
        'x = {value = 1, unit = "s", measured = "a", assumed = "b"}',
        'x = {value = 1, measured = "a"}',
        'x = {value = -1, unit = "s", measured = "a"}',
        'x = {value = 1, unit = "s", measured = ""}',
        'x = {value = 1, unit = "s", measured = "a", other = 2}',
    ],
)
def test_a_figure_without_its_source_is_refused(tmp_path: Path, row: str) -> None:
    path = tmp_path / "costs.toml"
    path.write_text(f"[a]\n{row}\n")
    with pytest.raises(PlanError, match=r"a\.x"):
        read_costs(path)


def test_an_unknown_figure_is_named_with_those_that_exist() -> None:
    with pytest.raises(PlanError, match=r"'demo\.x'.*demo\.decode_step_s"):
        read_costs()["demo.x"]


def test_one_figure_is_changed_alone() -> None:
    costs = read_costs()
    doubled = costs.times("demo.decode_step_s", 2.0)
    assert doubled["demo.decode_step_s"] == 2 * costs["demo.decode_step_s"]
    assert doubled["demo.decode_token_s"] == costs["demo.decode_token_s"]


def test_the_page_has_every_figure_with_its_source() -> None:
    page = (Path(__file__).parents[3] / "docs" / "plan.md").read_text()
    for row in read_costs():
        assert f"| `{row.name}` | {row.value:.6g} | {row.unit} | {row.origin}: {row.source} |" in page
