"""A release over recorded sessions, from canary to verdict: killed, overruled, its sessions then trained on.

The people are rows that a script writes into the store; what is decided needs no gateway and no engine.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
from tests.rewards.follow_ups.test_read import TOKENIZER
from tests.store.builders import session, turn

from ostinato.dashboard.access import OPERATOR
from ostinato.dashboard.reading import experiment
from ostinato.dashboard.reading.base import RecordSource
from ostinato.deploy.control import CycleControl, CycleWordError, say
from ostinato.deploy.late import fallen, promotions, settle_by_hand
from ostinato.deploy.release import ReleasePlan
from ostinato.gateway.arms import assign
from ostinato.loop import release as module
from ostinato.loop import results
from ostinato.loop.beside.served import deploy
from ostinato.loop.config import RunConfig
from ostinato.loop.dashboard.link import LoopLink
from ostinato.loop.live_config import CHALLENGER, CHAMPION, LiveConfig
from ostinato.loop.release import release
from ostinato.loop.run import START, Run
from ostinato.loop.stages.late import LateFacts
from ostinato.loop.trial import planned
from ostinato.rewards.live.definition import LIVE
from ostinato.rollout.collect import Collector
from ostinato.store import Ledger, Store
from ostinato.store.cycle_log import CycleAction
from ostinato.store.releases import ReleaseStage, releases
from ostinato.types import Arm, Decision, Ending, Session, Signal, SignalKind, Source, Verdict

LIVE_CONFIG = LiveConfig(
    developers=60, sessions=60, canary_share=0.25, canary_sessions=120, ab_sessions=180, shadow_requests=0
)
PLAN: ReleasePlan = planned(LIVE_CONFIG, "e1", 0.02)
KEPT, REVERTED = SignalKind.EDIT_KEPT, SignalKind.EDIT_REVERTED


class KilledError(BaseException):
    """Stands for the end of the process."""


class Crowd:
    """Sixty people who work at once; `good` is the share of the challenger's edits that they keep."""

    def __init__(self, store: Store, good: float) -> None:
        self.store, self.good = store, good
        self.served: list[float] = []
        self.dies_at = self.word_at = 0
        self.word = CycleAction.ROLL_BACK
        self.pauses = False

    async def arrive(self, period: str, since: float, sessions: int, **_: float) -> None:
        self.served.append(next(arm.share for arm in self.store.arms() if arm.name == CHALLENGER))
        for number in range(sessions):
            if self.dies_at == len(self.served) and number == sessions // 2:
                raise KilledError
            if self.word_at == len(self.served) and number == sessions // 2:
                say(self.store, self.word, "ada", "enough")
            if self.pauses and number % 20 == 19:
                await asyncio.sleep(0.05)
            self._work(f"p{number % 60}", number, since + 1e-5 * number)

    def _work(self, user: str, number: int, at: float) -> None:
        id = f"{len(self.served)}-{number}-{at}"
        arm = assign(user, self.store.arms(), "salt")
        often = self.good if arm.version == 2 else 0.6
        kind = KEPT if crc32(f"{user}/{number}/{arm.version}".encode()) % 100 < 100 * often else REVERTED
        about = session(id, user=user, arm=arm.name, consent=True, started_at=at, source=Source.LIVE)
        told = Signal(session_id=id, kind=kind, value=1.0, observed_at=at + 0.2)
        made = replace(turn(0, id), started_at=at, latency_s=0.1)
        self.store.record([made], [told], [replace(about, ending=Ending.FINISHED, task_id=None)])

    def clock(self) -> float:
        return 1e12

    def strata(self) -> dict[str, str]:
        return {}


@pytest.fixture
def store(place: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(module, "SETTLE_S", 0.0)
    store = Store.open(place)
    store.set_arms([Arm(name=CHAMPION, version=1, share=1.0, engines=("http://a:1",))])
    for user in range(60):
        store.accounts.set_consent(user=f"p{user}", granted=True, by="simulation")
    CycleControl(store, "cycle-1").log(CycleAction.STAGE_BEGAN, "release")
    yield store
    store.close()


async def released(store: Store, crowd: Crowd, tmp_path: Path, plan: ReleasePlan = PLAN) -> results.Tested:
    run = Run(directory=tmp_path)
    TOKENIZER.save(run.checkpoint(START))

    @asynccontextmanager
    async def serving(arm: Arm) -> AsyncIterator[None]:
        others = [each for each in store.arms() if each.name != arm.name]
        store.set_arms([*others, replace(arm, engines=("http://b:1",))])
        yield

    async def counters(engine: object) -> dict[str, int]:
        return {}

    resources: Any = SimpleNamespace(
        config=RunConfig(live=LIVE_CONFIG),
        run=run,
        store=store,
        show=SimpleNamespace(say=lambda text: None),
        serving=serving,
        counters=counters,
    )
    control = CycleControl(store, "cycle-1", poll_s=0.01)

    async def serve(version: int) -> None:
        deploy(store, version)

    late = LateFacts(resources, crowd)
    return await release(resources, crowd, plan, control, late=late, champion=1, candidate=2, serve=serve)


def served(store: Store) -> int:
    (arm,) = [each for each in store.arms() if each.share > 0]
    return arm.version


async def test_a_better_candidate_goes_all_the_way(store: Store, tmp_path: Path) -> None:
    crowd = Crowd(store, 1.0)
    tested = await released(store, crowd, tmp_path)
    assert tested.decision is Decision.PROMOTE, tested.reason
    assert tested.steps == ("canary", "split", "over") and crowd.served == [0.25, 0.5]
    assert served(store) == 2
    (verdict,) = store.verdicts(2)
    assert verdict.evidence["experiment"] == verdict.evidence["release"] == "e1"


async def test_the_page_of_a_trial_draws_what_its_verdict_says(store: Store, tmp_path: Path) -> None:
    """Though the people's clock is far ahead of the record's, and windows are over before their time."""
    await released(store, Crowd(store, 1.0), tmp_path)
    evidence = json.loads(json.dumps(store.verdicts(2)[0].evidence))
    link = LoopLink()
    page = experiment.one(RecordSource(store=store, lexicon=None, loop=link), OPERATOR, {"id": "e1"})
    last = page["looks"][-1]
    assert last["sessions"] == evidence["sessions"] and last["reward"] == evidence["promoting"]
    assert last["harming"] == evidence["harming"] and last["ratio"] is not None and len(page["looks"]) > 5
    assert last["means"]["challenger"] > last["means"]["champion"]
    (again,) = link.looks(store, page["terms"], store.now(), evidence["sessions"])["looks"][-1:]
    assert again["reward"] == pytest.approx(evidence["promoting"])
    met = store.sessions(source=Source.LIVE, arm=CHALLENGER)
    assert met and all(store.rewards(each.id) for each in met)


async def test_one_that_is_worse_is_taken_back_by_the_canary(store: Store, tmp_path: Path) -> None:
    crowd = Crowd(store, 0.0)
    tested = await released(store, crowd, tmp_path)
    assert tested.decision is Decision.ROLL_BACK and "worse" in tested.reason
    assert tested.steps == ("canary", "over") and crowd.served == [0.25] and served(store) == 1


async def test_an_equal_one_is_inconclusive_and_its_sessions_are_trained_on(
    store: Store, tmp_path: Path
) -> None:
    tested = await released(store, Crowd(store, 0.6), tmp_path)
    assert tested.decision in {Decision.INCONCLUSIVE, Decision.HOLD} and served(store) == 1
    ledger = Ledger(store)
    assert ledger.unaccounted() == 0 and ledger.unended() == 0
    harvest = Collector(store, LIVE).harvest([CHAMPION, CHALLENGER], as_of=1e12)
    assert harvest.offered == 300, "those of the canary and of the split, of both arms"


@pytest.mark.parametrize("step", [1, 2])
async def test_a_kill_in_any_step_goes_on_there(store: Store, tmp_path: Path, step: int) -> None:
    crowd = Crowd(store, 1.0)
    crowd.dies_at = step
    with pytest.raises(KilledError):
        await released(store, crowd, tmp_path)
    before = releases(store, "e1")
    crowd.dies_at = 0
    tested = await released(store, crowd, tmp_path)
    assert tested.decision is Decision.PROMOTE, tested.reason
    assert releases(store, "e1")[: len(before)] == before, "no step is entered twice"
    assert [row.stage for row in releases(store, "e1")].count(ReleaseStage.CANARY) == 1
    again = await released(store, crowd, tmp_path)  # killed before the stage's result was kept
    assert again.decision is Decision.PROMOTE and len(store.verdicts(2)) == 1


async def test_a_word_ends_it_and_says_what_the_numbers_said(store: Store, tmp_path: Path) -> None:
    crowd = Crowd(store, 1.0)
    crowd.word_at = 2
    tested = await released(store, crowd, tmp_path)
    assert tested.decision is Decision.ROLL_BACK and "ada said roll_back: enough" in tested.reason
    assert served(store) == 1 and "instead_of" in tested.evidence


async def test_a_promotion_by_hand_holds_whatever_the_numbers_said_and_after_a_kill(
    store: Store, tmp_path: Path
) -> None:
    crowd = Crowd(store, 0.6)
    crowd.word_at, crowd.word = 1, CycleAction.PROMOTE
    tested = await released(store, crowd, tmp_path)
    assert tested.decision is Decision.PROMOTE and served(store) == 2
    again = await released(store, crowd, tmp_path)  # killed before the stage's result was kept
    assert again.decision is Decision.PROMOTE and served(store) == 2


async def test_what_people_answered_is_read_before_the_look_that_decides(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every edit of the challenger is kept, and every session of it is answered in anger.

    While the first answers are read, many more sessions end: a look at these, unread, would promote it.
    """
    monkeypatch.setattr(module, "YOUNG_S", 0.0)
    late: list[int] = []

    async def read(resources: Any, sessions: Sequence[Session]) -> None:
        if sessions and not late:
            late.extend(range(600, 1_800))
            for number in late:
                crowd._work(f"p{number % 60}", number, sessions[0].started_at + 1e-5 * number)
        angry = [each for each in sessions if each.arm == CHALLENGER]
        resources.store.record((), [complaint(each) for each in angry])

    monkeypatch.setattr(module, "read_follow_ups", read)
    crowd = Crowd(store, 1.0)
    crowd.pauses = True
    split_alone = planned(replace(LIVE_CONFIG, canary_sessions=0, ab_sessions=600), "e1", 0.02)
    tested = await released(store, crowd, tmp_path, split_alone)
    assert tested.decision is Decision.ROLL_BACK and "complaints" in tested.reason
    assert served(store) == 1


async def test_a_trial_ends_when_late_facts_demote_its_champion_and_nothing_is_lost(
    store: Store, tmp_path: Path
) -> None:
    """People of an earlier trial take back its edits while the next one is under way."""
    evidence = {"release": "e0", "replaced": 0}
    won = Verdict(version=1, decision=Decision.PROMOTE, reason="better", evidence=evidence, id="e0")
    store.add_verdict(won)
    crowd = Crowd(store, 1.0)
    crowd.pauses = True

    async def arrive(period: str, since: float, sessions: int, **_: float) -> None:
        await Crowd.arrive(crowd, period, since, sessions)
        settle_by_hand(store, 1, Decision.DEMOTE, "ada", "undone after days")
        await asyncio.sleep(60)

    crowd.arrive = arrive  # type: ignore[method-assign]
    tested = await released(store, crowd, tmp_path)
    assert tested.decision is Decision.HOLD and "rests on version 1, which was ada said" in tested.reason
    assert tested.steps == ("canary", "over") and served(store) == 1
    assert Ledger(store).unaccounted() == 0 and Ledger(store).unended() == 0
    assert [each.replaced for each in fallen(promotions(store))] == [0]


async def test_two_words_at_once_are_both_named_and_the_kill_switch_has_the_last_one(
    store: Store, tmp_path: Path
) -> None:
    crowd = Crowd(store, 1.0)

    async def arrive(period: str, since: float, sessions: int, **_: float) -> None:
        await Crowd.arrive(crowd, period, since, sessions)
        say(store, CycleAction.PROMOTE, "bob", "I like it")
        say(store, CycleAction.ROLL_BACK, "ada", "enough")
        with pytest.raises(CycleWordError, match="no trial is under way"):
            say(store, CycleAction.PROMOTE, "bob", "again")

    crowd.arrive = arrive  # type: ignore[method-assign]
    tested = await released(store, crowd, tmp_path)
    assert tested.decision is Decision.ROLL_BACK and served(store) == 1
    assert tested.evidence["words"] == ["bob said promote", "ada said roll_back"]


def complaint(about: Session) -> Signal:
    return Signal(
        id=f"follow-up/{about.id}",
        session_id=about.id,
        kind=SignalKind.FOLLOW_UP,
        value=1.0,
        observed_at=about.started_at + 0.05,
        turn=0,
    )
