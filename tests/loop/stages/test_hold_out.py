"""The first version is served beside the newest; what the hold-out did is measured and never learnt from."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.store.builders import session, turn

from ostinato.deploy.hold_out import FIRST, NEWEST
from ostinato.loop.beside.served import deploy
from ostinato.loop.config import RunConfig
from ostinato.loop.live_config import LiveConfig
from ostinato.loop.stages.hold_out import holding_out
from ostinato.loop.trial import compare_held_out
from ostinato.store import Ledger, Store
from ostinato.types import Arm, Ending, Signal, SignalKind, Source, State


def resources_of(store: Store, share: float) -> Any:
    kept: dict[str, Any] = {}

    async def stage(name: str, schema: type, work: Callable[[], Awaitable[Any]]) -> Any:
        if name not in kept:
            kept[name] = await work()
        return kept[name]

    def put_arm(arm: Arm) -> None:
        store.set_arms([*(each for each in store.arms() if each.name != arm.name), arm])

    @asynccontextmanager
    async def serving(arm: Arm) -> AsyncIterator[None]:
        put_arm(replace(arm, engines=(f"http://{arm.name}-{arm.version}:1",)))
        yield

    live = LiveConfig(hold_out=share)
    return SimpleNamespace(
        store=store, config=RunConfig(live=live), stage=stage, serving=serving, put_arm=put_arm
    )


async def test_the_first_version_stays_the_first_and_the_newest_follows_the_champion(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    resources = resources_of(store, 0.2)
    for champion in (3, 7):
        arm = Arm(name="champion", version=champion, share=0.0, engines=("http://now:1",))
        store.set_arms([arm])
        async with holding_out(resources, arm):
            deploy(store, champion)
            arms = {arm.name: arm for arm in store.arms()}
            assert (arms[FIRST].version, arms[FIRST].engines) == (3, ("http://holdout-first-3:1",))
            assert (arms[NEWEST].version, arms[NEWEST].engines) == (champion, ("http://now:1",))
            assert [arms[name].share for name in ("champion", FIRST, NEWEST)] == [1.0, 0.1, 0.1]
    async with holding_out(resources_of(store, 0.0), arm):
        assert [arm.name for arm in store.arms()] == ["champion"], "a run without a hold-out ends it"
    store.close()


def test_what_they_did_is_compared_and_never_collected(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    for number in range(40):
        arm, id_ = (FIRST, NEWEST)[number % 2], f"s{number}"
        about = session(id_, user=f"p{number}", arm=arm, source=Source.LIVE, started_at=float(number))
        kind = SignalKind.EDIT_KEPT if arm == NEWEST or number % 8 == 0 else SignalKind.EDIT_REVERTED
        told = Signal(session_id=id_, kind=kind, value=1.0, observed_at=number + 2.0)
        made = replace(turn(0, id_), started_at=float(number))
        store.record([made], [told], [replace(about, ending=Ending.FINISHED, consent=True)])
    found = compare_held_out(resources_of(store, 0.2), as_of=1e12)
    assert found is not None and found.change is not None and found.change.low > 0
    assert found.users == {FIRST: 20, NEWEST: 20}
    ledger = Ledger(store)
    assert ledger.states()[State.MEASURED] == 40 and ledger.unaccounted() == ledger.unended() == 0
    assert compare_held_out(resources_of(store, 0.0), as_of=1e12) is None
    store.close()
