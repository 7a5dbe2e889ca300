"""Settings that make no sense, or would be waited for without end, are refused before anything starts.

Covers loop/config.py and loop/live_config.py.
"""

from pathlib import Path

import pytest

from ostinato.config import ConfigError, dump, load
from ostinato.demo.commands import DEMO
from ostinato.deploy.budget import BudgetRule
from ostinato.deploy.terms import CLAIMS
from ostinato.loop.config import RunConfig, check, sources
from ostinato.loop.live_config import BUDGETS
from ostinato.tasks.pebble import generate, write


@pytest.mark.parametrize(("groups", "ahead"), [(24, 12), (17, 5), (14, 2)])
def test_a_batch_that_practice_never_fills_is_refused_with_the_numbers(groups: int, ahead: int) -> None:
    config = load(RunConfig, None, [f"refine.groups={groups}", f"practice.ready_ahead={ahead}"])
    assert groups > ahead + config.practice.groups_at_once - 1
    with pytest.raises(ConfigError, match=f"refine.groups is {groups}, practice.ready_ahead is {ahead}"):
        check(config)


def test_settings_that_can_work_are_taken() -> None:
    check(RunConfig())
    check(load(RunConfig, DEMO))
    check(load(RunConfig, None, ["refine.groups=24", "practice.ready_ahead=24", "refine.staleness=0"]))
    for setting in ("refine.staleness=-1", "refine.groups=0"):
        with pytest.raises(ConfigError, match=f"{setting.partition('=')[0][:6]}.*at least"):
            load(RunConfig, None, [setting])
    with pytest.raises(ConfigError, match="practice ends at"):
        check(load(RunConfig, None, ["refine.versions=none"]))


@pytest.mark.parametrize(
    "setting",
    [
        "live.claim=best",
        "live.claim=suite",
        "live.budget=endless",
        "live.assign=team",
        "live.judge=http://127.0.0.1:1/v1",
        "live.judge_model=m",
        "live.challenger_share=1.0",
        "live.challenger_share=0.0",
        "live.sessions=0",
        "live.sessions=81",
        "live.ab_sessions=79",
        "bench.passes=0",
        "bench.frozen=1.0",
        "bench.gate_share=0.0",
        "bench.gate_share=1.5",
        "harness.summarize_after=128",
        "schedule.cycles=0",
        "tasks.held_out={train = 3}",
        "tasks.held_out={seeds = 0}",
        "tasks.held_out={}",
        "tasks.sources={ours = {}}",
        'tasks.sources={ours = {path = "no/such/folder"}}',
        "tasks.sources={pebbles = {kinds = {fox = 1.0}}}",
        "tasks.sources={pebbles = {kinds = {fix = 0.0}}}",
        "tasks.sources={example = {kinds = {fix = 1.0}}}",
        "tasks.sources={pebbles = {weight = 0.0}, more = {weight = 1.0}}",
    ],
)
def test_a_run_that_would_be_refused_later_is_refused_before_it_is_prepared(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.split("=", maxsplit=1)[0]):
        check(load(RunConfig, None, [setting]))


@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        ([], "at least one stage"),
        (["practise"], "names 'practise'"),
        (["practice", "teach"], "in the order"),
        (["teach", "teach"], "each once"),
        (["teach", "practice", "cycle"], "cycle without after"),
        (["practice"], "lacks teach and model.path"),
    ],
)
def test_a_list_of_stages_that_makes_no_sense_is_refused_with_its_reason(
    stages: list[str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=f"schedule.stages.*{reason}"):
        check(load(RunConfig, None, [f"schedule.stages={stages}"]))


def test_claims_and_budgets_that_are_none_are_refused_with_those_that_are() -> None:
    assert set(BUDGETS) == set(BudgetRule)
    with pytest.raises(ConfigError, match=f"live.claim is 'faster': it is one of {', '.join(CLAIMS)}"):
        check(load(RunConfig, None, ["live.claim=faster"]))


def test_an_engine_without_room_for_the_longest_turn_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"harness.max_context is 448 and engine.context 447"):
        check(load(RunConfig, None, ["engine.context=447"]))
    check(load(RunConfig, None, ["schedule.stages=['before']", "model.path=/somewhere"]))


def test_a_file_names_its_sources_and_is_written_back(tmp_path: Path) -> None:
    write(generate("fix", "names", 1), tmp_path / "ours" / "one")
    file = tmp_path / "run.toml"
    file.write_text(
        f"[tasks]\nheld_out = {{names = 1}}\n[tasks.sources.ours]\npath = {str(tmp_path / 'ours')!r}\n"
    )
    config = load(RunConfig, file)
    check(config)
    assert sources(config.tasks).splits == ("names",)
    file.write_text(dump(config))
    assert load(RunConfig, file) == config
    with pytest.raises(ConfigError, match="unknown key"):
        load(RunConfig, None, ["tasks.sources={ours = {paths = 3}}"])
