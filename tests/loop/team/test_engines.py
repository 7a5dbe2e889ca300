"""The supervisor's own engine servers before a small vLLM: whatever the cycle does, people are served."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fuzz.little_vllm import LittleVllm, little_vllm
from tests.engine.remote.test_standing import TOKENIZER, WIDE, trained
from tests.engine.toolbox import decoder

from ostinato.deploy.traffic import point_arm, split
from ostinato.loop.placement.config import EnginesConfig
from ostinato.loop.run import START
from ostinato.loop.services import Services
from ostinato.loop.team.engines import OwnEngines
from ostinato.loop.team.file import Team, make_team, open_team
from ostinato.model.checkpoint import save
from ostinato.store import Store
from ostinato.sync import Publisher
from ostinato.types import Arm

GONE = "http://127.0.0.1:9"
CHAMPION = Arm(name="champion", version=1, share=0.5, engines=(GONE,), experiment="trial")
CHALLENGER = Arm(name="challenger", version=0, share=0.5, engines=(GONE,), experiment="trial")


@pytest.fixture
async def little(tmp_path: Path):
    save(tmp_path / "little", decoder(1, **WIDE, max_positions=2048), TOKENIZER, version=0)
    async with little_vllm(tmp_path / "little", 2048) as (_, little):
        yield little


@pytest.fixture
def released(tmp_path: Path, little: LittleVllm) -> Team:
    """A team whose cycle has released version 1."""
    model = tmp_path / "little"
    terms = {"address": "http://127.0.0.1:1", "people": 20, "context": 2048}
    make_team(tmp_path / "at" / "team.toml", engine=little.url, model=str(model), **terms)
    team = open_team(tmp_path / "at" / "team.toml")
    shutil.copytree(model, team.run.checkpoint(START))
    Publisher(team.run.open_objects()).anchor(1, trained(model, 1))
    return team


def pools(store: Store) -> dict[str, tuple[str, ...]]:
    return {arm.name: arm.engines for arm in store.arms() if arm.share > 0}


@pytest.mark.slow
async def test_both_arms_of_a_trial_are_served_while_the_cycle_is_away(
    tmp_path: Path, little: LittleVllm, released: Team
) -> None:
    store = released.open_store()
    store.set_arms([CHAMPION, CHALLENGER])
    async with Services(replace(released.run, directory=released.front)) as services:
        own = OwnEngines(services, store, released, tmp_path / "little")
        assert {each.version for each in await own.begin()} == {0, 1} and list(little.roots) == ["team@1"]
        ours = pools(store)
        assert all(len(urls) == 1 and GONE not in urls for urls in ours.values())
        point_arm(store, replace(CHAMPION, engines=()), GONE)  # the cycle is there again
        assert await own.look()
        assert pools(store)["champion"] == (GONE, *ours["champion"])
        own.stand_in()
        assert pools(store) == ours
        split(store, [replace(CHAMPION, engines=ours["champion"], share=1.0), replace(CHALLENGER, share=0.0)])
        assert await own.look() and [arm.version for arm in store.arms() if arm.share] == [1]
        split(store, [replace(CHAMPION, version=2, share=1.0)])  # nothing is published as version 2
        assert not await own.look() and pools(store) == {"champion": (GONE,)}
    store.close()


async def test_an_engine_of_one_version_at_a_time_is_left_to_the_cycle(
    tmp_path: Path, little: LittleVllm, released: Team
) -> None:
    engine = EnginesConfig(url=(little.url, little.url), release="hook", on_release=("true",))
    team = replace(released, config=replace(released.config, engine=engine))
    store = team.open_store()
    store.set_arms([replace(CHAMPION, share=1.0)])
    async with Services(replace(team.run, directory=team.front)) as services:
        own = OwnEngines(services, store, team, tmp_path / "little")
        assert await own.begin() == [] and await own.follow() is None
    assert pools(store) == {"champion": (GONE,)} and not little.roots
    store.close()
