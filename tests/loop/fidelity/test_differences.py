"""What people are served otherwise is found, and must be named.

Covers loop/fidelity/differences.py and loop/fidelity/commands.py.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tests.harness.differences import DIFFERENCES, Where
from tests.store.builders import session, turn

from ostinato.cli import main
from ostinato.config import ConfigError, dump, load, read
from ostinato.harness.profiles.profile import profile
from ostinato.loop.config import CAN_DIFFER, RunConfig, check
from ostinato.loop.fidelity.differences import Brought, differences, held_for, unnamed
from ostinato.loop.run import Run
from ostinato.loop.team.file import make_team
from ostinato.store import Store
from ostinato.types import Decision, Sampling, Source, Verdict

ADMITTED = Verdict(version=3, decision=Decision.ADMIT, reason="nothing is lost", evidence={"tasks": 9})


def of_people(**tables: Any) -> RunConfig:
    live = {"developers": "people", "sessions": 40}
    return read(RunConfig, {"live": live, **tables}, "the test")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(tmp_path / "store.db")) as store:
        yield store


def seen(store: Store, name: str, harness: str, heat: float, **more: Any) -> None:
    told = replace(session(name, harness=harness), **more)
    drawn = replace(turn(0, name), sampling=Sampling(temperature=heat))
    store.record([drawn], [], [told])


def test_simulated_developers_work_in_the_run_s_own_harness() -> None:
    assert differences(RunConfig()) == []


def test_people_meet_every_setting_that_the_product_sets_otherwise() -> None:
    """The list of the settings is the one that holds the harness together (`tests/test_one_harness.py`)."""
    found = {each.name: each for each in differences(of_people())}
    settings = {each.name for each in DIFFERENCES if each.where is Where.SETTING}
    assert found.keys() == settings - {"temperature"} | {"sampling", "sandbox", "permissions", "user"}
    assert (found["sampling"].served, found["sampling"].measured) == ("temperature 0.3", "temperature 1")
    assert {each.trained for each in found.values()} != {""}
    only = differences(of_people(schedule={"stages": ["after", "cycle"]}, model={"path": "m"}))
    assert {each.trained for each in only} == {""}, "such a run trains on the sessions of people alone"


def test_everything_that_can_differ_has_a_name() -> None:
    harness = {"profile": "full", "max_turns": 9, "max_broken": 3, "summarize_after": 9}
    brought = Brought(servers=("tickets",), search=True)
    found = differences(of_people(harness=harness, teach={"profiles": ["full", "short"]}), brought=brought)
    assert {each.name for each in found} == CAN_DIFFER | {"prompt", "tools"}
    assert {each.name: each.served for each in found}["mcp"] == "tickets"


def test_the_record_goes_before_what_the_product_would_give(store: Store) -> None:
    config, day = of_people(), 86_400.0
    full, core = profile("full").hash, profile("core").hash
    now = 100 * day
    seen(store, "old", full, 0.9, started_at=now - 20 * day)
    assert not [each for each in differences(config, store, now=now) if each.name == "profile"]
    seen(store, "a", core, 1.0, started_at=now - day)
    seen(store, "b", core, 1.0, source=Source.PRACTICE)
    names = {each.name for each in differences(config, store, now=now)}
    assert not names & {"profile", "sampling", "tools"}, "people draw as practice does"
    seen(store, "c", "9f" * 8, 1.0, started_at=now - day)
    found = {each.name: each for each in differences(config, store, now=now)}
    assert found["profile"].served == "core | unknown 9f9f9f9f9f9f" and found["profile"].trained == "core"
    assert {"tools", "prompt"} < found.keys()


def test_the_gate_admits_nobody_while_a_difference_has_no_name() -> None:
    found = differences(of_people())
    held = held_for(ADMITTED, found)
    assert held.decision is Decision.HOLD and "max_turns" in held.reason and ADMITTED.reason in held.reason
    wanted = {each.name: "we want it" for each in found}
    named = differences(of_people(fidelity={"wanted": wanted}))
    assert not unnamed(named) and held_for(ADMITTED, named).decision is Decision.ADMIT
    assert held_for(ADMITTED, named).evidence["fidelity"] == [asdict(each) for each in named]
    back = replace(ADMITTED, decision=Decision.ROLL_BACK)
    assert held_for(back, found).decision is Decision.ROLL_BACK, "a harm stays a harm"


def test_a_profile_is_named_with_its_prompt_and_tools() -> None:
    taught = {"teach": {"profiles": ["core", "short"]}, "fidelity": {"wanted": {"profile": "two clients"}}}
    found = [each for each in differences(of_people(**taught)) if each.named]
    assert {each.name for each in found} == {"profile", "prompt", "tools"}


@pytest.mark.parametrize("wanted", [{"colour": "red"}, {"sandbox": " "}])
def test_a_name_that_means_nothing_is_refused(wanted: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"fidelity\.wanted"):
        check(of_people(fidelity={"wanted": wanted}))


@pytest.mark.parametrize("context", [2048, 32_768])
def test_the_file_of_a_team_names_all_of_its_differences(
    context: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "team.toml"
    make_team(file, engine="http://e", model="m", address="http://h:1", people=5, context=context)
    assert main(["fidelity", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in told["differences"]} == {"sandbox", "permissions", "user"}
    assert told["unnamed"] == 0


def test_a_run_folder_is_read_with_its_record(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    run = Run(directory=tmp_path)
    run.config.write_text(dump(of_people()))
    seen(store, "a", "", 0.3, started_at=store.now())
    assert main(["fidelity", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "of a client that names none" in out and out.endswith("11 differences, 11 of them not named\n")
    assert main(["fidelity", str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err


def test_recipes_differ_in_nothing() -> None:
    recipes = Path(__file__).parents[3] / "recipes"
    assert [differences(load(RunConfig, each)) for each in sorted(recipes.glob("*.toml"))] == [[], []]
