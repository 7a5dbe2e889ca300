"""Covers dashboard/reading/turns.py, dashboard/reading/edits.py, dashboard/reading/ledger.py and
dashboard/reading/now.py: one session, followed from a token to its reward."""

from dataclasses import replace

import pytest
from fuzz.seen_session import live, tell
from fuzz.seen_store import FOREIGN, NOW, SILENT, STORY

from ostinato.dashboard.access import OPERATOR, Viewer
from ostinato.dashboard.reading.base import NotThereError, RecordSource
from ostinato.dashboard.reading.now import marker
from ostinato.dashboard.reading.session import TURNS, one
from ostinato.model.families import HermesRenderer
from ostinato.store.purge import purge
from ostinato.types import Signal, SignalKind

ADMIN = Viewer(name="root", organisation="acme", admin=True)
"""Somebody who sees the sessions of others."""


def test_a_token_leads_to_its_call_its_edit_and_the_reward(reading: RecordSource) -> None:
    answer = one(reading, OPERATOR, {"id": STORY})
    turn = answer["turns"][2]
    assert turn["said"]["calls"][0]["diff"] == [
        ("-", "    return width + height"),
        ("+", "    return width * height"),
    ]
    assert {token["call"] for token in turn["tokens_shown"]} == {0}
    assert turn["versions"] == [7, 8]
    edit = next(each for each in answer["edits"] if each["turn"] == 2)
    assert (edit["call"], edit["fate"], edit["path"]) == (0, "kept", "shapes.py")
    assert edit["survival"][-1]["rate"] == 0.86
    outcome = answer["rewards"][0]["parts"][0]
    assert {each["id"] for each in outcome["evidence"]} >= set(edit["signals"])
    assert answer["ledger"]["prompts"] == [
        {"prompt": f"live/{STORY}", "stage": "practice", "phase": "trained", "reason": None, "trained": [8]}
    ]
    assert turn["state"] == "trained"


def test_the_transcript_is_what_each_turn_added(reading: RecordSource) -> None:
    turns = one(reading, OPERATOR, {"id": STORY})["turns"]
    assert [each["role"] for each in turns[0]["heard"]] == ["system", "user"]
    assert [(each["role"], each["call"]) for each in turns[1]["heard"]] == [("result", "t0c0")]
    assert turns[5]["base"] == 1 and turns[5]["segment"] == 1
    assert turns[6]["kind"] == "side"


def test_without_consent_there_are_numbers_and_no_text(reading: RecordSource) -> None:
    answer = one(reading, ADMIN, {"id": SILENT})
    assert answer["texts"] == "without consent"
    assert "secret" not in repr(answer) and "width" not in repr(answer)
    assert answer["turns"][2]["tokens_shown"][0]["logprob"] is not None
    assert answer["turns"][2]["tokens_shown"][0]["id"] is None
    assert answer["edits"][0]["survival"]


def test_consent_that_was_taken_back_hides_the_text(reading: RecordSource) -> None:
    assert one(reading, OPERATOR, {"id": STORY})["texts"] == "shown"
    reading.store.accounts.set_consent(organisation="acme", user="ada", granted=False, by="ada")
    answer = one(reading, ADMIN, {"id": STORY})
    assert answer["texts"] == "consent withdrawn"
    assert answer["turns"][2]["heard"] == [] and answer["edits"][0]["path"] is None


@pytest.mark.parametrize("whose", ["the operator", "its user"])
def test_consent_does_not_hide_a_session_from_operator_and_user(reading: RecordSource, whose: str) -> None:
    session = reading.store.session(SILENT)
    assert session is not None
    own = Viewer(name=session.user, organisation=session.organisation)
    answer = one(reading, OPERATOR if whose == "the operator" else own, {"id": SILENT})
    assert answer["texts"] == "shown" and answer["turns"][0]["heard"] and not answer["shared"]
    assert not one(reading, ADMIN, {"id": SILENT})["turns"][0]["heard"]


def test_sessions_of_others_are_not_there(reading: RecordSource) -> None:
    for viewer, id in (
        (Viewer(name="ada", organisation="acme"), FOREIGN),
        (Viewer(name="root", organisation="acme", admin=True), FOREIGN),
        (Viewer(name="ada", organisation="acme"), SILENT),
        (OPERATOR, "nowhere"),
        (OPERATOR, ""),
    ):
        with pytest.raises(NotThereError):
            one(reading, viewer, {"id": id})
        assert marker(reading, viewer, id or "x") == "none"


def test_a_purge_under_the_readers_eyes_is_said(reading: RecordSource) -> None:
    purge(reading.store, session=STORY, by="ada")
    answer = one(reading, OPERATOR, {"id": STORY})
    assert answer["purged"]["by"] == "ada"
    assert answer["window"]["all"] == 7 and answer["signals"] == []
    assert "width" not in repr(answer)


def test_a_long_session_is_read_in_windows(reading: RecordSource, renderer: HermesRenderer) -> None:
    session = live("long", "ada", "acme", consent=True, at=NOW)
    some = tell(renderer, session)[0]
    turns = [replace(some, index=n, segment=n) for n in range(300)]
    reading.store.record(turns, (), [session])
    answer = one(reading, OPERATOR, {"id": "long", "from": "100"})
    assert [turn["number"] for turn in answer["turns"]] == list(range(100, 100 + TURNS))
    assert answer["window"] == {"first": 100, "last": 129, "before": 70, "after": 130, "all": 300}
    alone = one(reading, OPERATOR, {"id": "long", "turn": "299"})
    assert [turn["number"] for turn in alone["turns"]] == [299]
    assert one(reading, OPERATOR, {"id": "long", "from": "5000"})["turns"] == []


def test_the_marker_moves_when_something_is_new(reading: RecordSource) -> None:
    before, all_before = marker(reading, OPERATOR, STORY), marker(reading, OPERATOR, "")
    late = Signal(session_id=STORY, kind=SignalKind.COMPLAINT, value=1.0, observed_at=NOW)
    reading.store.record((), [late])
    assert marker(reading, OPERATOR, STORY) != before
    reading.store.set_arms([])
    assert marker(reading, OPERATOR, "") != all_before
