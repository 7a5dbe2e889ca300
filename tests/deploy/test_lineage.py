from pathlib import Path

import pytest

from ostinato.deploy.lineage import LineageError, lineage, tree
from ostinato.deploy.statistics import wilson
from ostinato.store import Ledger, Store
from ostinato.types import (
    Checkpoint,
    Completion,
    Decision,
    FinishReason,
    Group,
    Report,
    Reward,
    RewardPart,
    Sample,
    Session,
    Signal,
    SignalKind,
    Source,
    Turn,
    Verdict,
)


def version(number: int, parent: int | None, batch: tuple[str, ...] = ()) -> Checkpoint:
    kind = "anchor" if parent is None else "delta"
    return Checkpoint(
        version=number, parent=parent, digest=f"{number}d", kind=kind, bytes=8, created_at=0.0, batch=batch
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "store.db")
    session = Session(
        id="s1", source=Source.LIVE, user="ada", arm="a", task_id=None, harness="h", started_at=0.0
    )
    completion = Completion(ids=(2,), logprobs=(-0.5,), versions=(0,), finish=FinishReason.STOP)
    turn = Turn(
        session_id="s1",
        index=0,
        segment=0,
        arm="a",
        prompt_ids=(1,),
        completion=completion,
        started_at=0.0,
        latency_s=0.1,
    )
    kept = Signal(session_id="s1", kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=1.0)
    store.record([turn], [kept], [session])
    store.add_rewards(
        (Reward(session_id="s1", definition="9f", parts=(RewardPart(name="outcome", value=1.0),)),)
    )
    sample = Sample(
        session_id="s1",
        turns=(0,),
        ids=(1, 2),
        mask=(False, True),
        logprobs=(0.0, -0.5),
        versions=(0, 0),
        temperatures=(1.0, 1.0),
        advantage=0.25,
    )
    Ledger(store).offer(Group(id="g1", prompt="p1", samples=(sample,), rewards=(1.0,)))
    store.add_version(version(0, None))
    store.add_version(version(1, 0, ("g1",)))
    store.add_report(Report(version=1, scores={"seeds": wilson(60, 100)}))
    store.add_verdict(Verdict(version=1, decision=Decision.PROMOTE, reason="not worse"))
    return store


def test_the_lineage_leads_from_a_version_to_the_facts_behind_it(store: Store) -> None:
    newest, first = lineage(store, 1)
    (trained,) = newest.trained
    assert (trained.session.user, trained.advantage) == ("ada", 0.25)
    assert trained.signals[0].kind is SignalKind.EDIT_KEPT and trained.rewards[0].total == 1.0
    assert newest.verdicts[0].decision is Decision.PROMOTE and newest.reports[0].scores["seeds"].n == 100
    assert first.version.version == 0 and first.trained == ()


def test_the_lineage_reads_as_text(store: Store) -> None:
    text = tree(lineage(store, 1))
    assert "version 1 (delta" in text and "edit_kept=1 -> reward +1.00 by 9f -> advantage +0.25" in text
    assert "seeds 60% of 100" in text and "promote (not worse)" in text


def test_an_unknown_version_is_named(store: Store) -> None:
    with pytest.raises(LineageError, match="version 7"):
        lineage(store, 7)
