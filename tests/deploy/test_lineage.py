from dataclasses import replace
from pathlib import Path

import pytest

from ostinato.deploy.late import settle_by_hand
from ostinato.deploy.lineage import LineageError, lineage, tree, version_meant
from ostinato.deploy.statistics import wilson
from ostinato.store import Ledger, Store
from ostinato.types import (
    Checkpoint,
    Completion,
    Decision,
    FinishReason,
    Group,
    IdError,
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
    assert (
        "version 1 (delta" in text and "  s1  reward +1.00 by 9f  advantage +0.25  open, edit_kept=1" in text
    )
    store.add_report(Report(version=1, scores={"seeds": replace(wilson(60, 100), k=2, best=0.75)}))
    assert "seeds 60% (best of 2: 75%) of 100" in tree(lineage(store, 1))
    assert "seeds 60% of 100" in text and "promote (not worse)" in text


ODD = "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\n+b\x1b[2J\n+c\r\u2028"


def test_no_text_of_a_stranger_breaks_a_line(store: Store) -> None:
    """Each kind of signal, and the words of a verdict, with newlines and escapes in them."""
    lines = len(tree(lineage(store, 1)).splitlines())
    kinds = [kind for kind in SignalKind if kind is not SignalKind.ENDING]
    store.record([], [Signal(session_id="s1", kind=kind, value=ODD, observed_at=1.0) for kind in kinds])
    store.add_verdict(Verdict(version=1, decision=Decision.HOLD, reason=ODD))
    text = tree(lineage(store, 1))
    assert len(text.splitlines()) == lines + 1 and "\x1b" not in text
    assert "patch=+2/-1 lines" in text


def test_equal_facts_are_counted(store: Store) -> None:
    kept = [Signal(session_id="s1", kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=2.0) for _ in range(2)]
    store.record([], kept)
    assert "edit_kept=1 (3 times)" in tree(lineage(store, 1))


def test_a_version_is_meant_by_its_number_or_its_digest(store: Store) -> None:
    digest = "8aa3e7b1ba6f"
    store.add_version(replace(version(2, 1), digest=digest))
    words = ("2", "8aa3", digest, "1d", "7", "-1")
    assert [version_meant(store, given) for given in words] == [2, 2, 2, 1, 7, -1]
    with pytest.raises(IdError, match="no version 9aa3 in"):
        version_meant(store, "9aa3")


def test_an_unknown_version_is_named(store: Store) -> None:
    with pytest.raises(LineageError, match="version 7"):
        lineage(store, 7)


def test_what_became_of_a_promotion_stands_in_the_lineage(store: Store) -> None:
    won = Verdict(version=1, decision=Decision.PROMOTE, reason="better", id="e1")
    store.add_verdict(replace(won, evidence={"release": "e1", "replaced": 0}))
    assert "  promotion: by hand, without a trial" in tree(lineage(store, 1))
    settle_by_hand(store, 1, Decision.DEMOTE, "ada", "undone after days")
    text = tree(lineage(store, 1))
    assert "  promotion: demoted" in text and "demote (ada said demote: undone after days)" in text
