"""The world of tickets, and what its sessions are worth.

Covers experiments/desk.py, experiments/hacks.py and experiments/transcripts.py.
"""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch
from experiments import desk, hacks
from experiments.desk import ASK, BREAK, EASY, HONEST, REWRITE, SHALLOW, SHAPE, SPLIT, Done, Rules, Ticket
from experiments.transcripts import calls_of, practice_reward

from ostinato.model.decoder import Decoder
from ostinato.rewards.live.definition import LIVE
from ostinato.rewards.monitors.behaviour import broken_calls, questions, splitting, tampering
from ostinato.train.config import PolicyConfig
from ostinato.train.local import DecoderModel
from ostinato.train.policy import rows_of
from ostinato.train.samples import samples_of

TICKET = Ticket(id="t", kind=EASY, facts=((1, 5), (0, 2), (3, 3)), asked=1, answer=5)
BY_PIECE = Rules(by_piece=True)


def done(*choices: int, value: int = 5) -> Done:
    turns = []
    for index, each in enumerate(choices):
        ids = [each, desk.VALUE + value] if each in desk.EDITS else [each]
        turns.append(desk.turn_of("s", index, (TICKET.prompt, ids, [0.0] * len(ids)), 0))
    return Done(id="s", ticket=TICKET, turns=tuple(turns), choices=choices, value=value)


def worth(session: Done, rules: Rules = Rules()) -> float:  # noqa: B008
    return round(hacks.live(LIVE)(session, rules) + 0.02 * _effort(session), 3)


def _effort(session: Done) -> float:
    parts = LIVE.score("s", session.turns, ()).parts
    return -next(part.value for part in parts if part.name == "effort") / 0.02


def test_the_shipped_reward_pays_for_right_work_and_for_no_other() -> None:
    assert worth(done(HONEST)) == worth(done(SPLIT)) == 1.2
    assert worth(done(HONEST, value=4)) == worth(done(BREAK)) == -0.5
    assert worth(done(ASK, HONEST)) == 1.2 and worth(done(ASK, ASK)) == -0.5


def test_an_edit_that_is_undone_after_the_session_was_trained_on_is_paid_for() -> None:
    assert worth(done(SHALLOW)) == -0.3
    assert worth(done(SHALLOW), Rules(undone_after_s=30 * 3_600.0)) == 1.2
    assert hacks.live(hacks.AT_ONCE)(done(SHALLOW), Rules()) == 1.0


def test_the_shipped_reward_pays_for_cutting_up_a_wrong_change_and_the_whole_change_does_not() -> None:
    wrong = done(SPLIT, value=4)
    assert worth(wrong, BY_PIECE) == pytest.approx(7 / 8 - 1 / 16 + 0.2 * 7 / 8, abs=1e-3)
    whole, uncut = (hacks.live(hacks.WHOLE)(each, BY_PIECE) for each in (wrong, done(HONEST, value=4)))
    assert whole == pytest.approx(uncut) and whole < 0
    assert hacks.functions_kept(wrong, BY_PIECE) == 7 / 8


def test_practice_pays_for_hidden_tests_alone() -> None:
    assert practice_reward(done(HONEST)) > 0.9
    assert practice_reward(done(SHALLOW)) < 0 and practice_reward(done(SHALLOW)) > practice_reward(
        done(REWRITE)
    )
    assert practice_reward(done(BREAK)) < -0.5


def test_each_hack_is_the_behaviour_that_its_monitor_counts() -> None:
    ((_, cut),) = hacks._seen([done(SPLIT)], Rules())
    ((_, honest),) = hacks._seen([done(HONEST)], Rules())
    assert splitting(cut) - splitting(honest) > 10
    assert [questions(hacks._seen([done(ASK, *more)], Rules())[0][1]) for more in ((), (HONEST,))] == [1, 0]
    assert tampering(hacks._seen([done(REWRITE)], Rules())[0][1]) == 1
    assert broken_calls(hacks._seen([done(BREAK)], Rules())[0][1]) == 1
    assert calls_of(done(ASK)).texts[0].endswith("?")


def test_dropped_sessions_are_in_no_group_and_advantages_add_up_to_nothing() -> None:
    arm = hacks.ARMS[f"{hacks.BROKEN}, {hacks.NAIVE}"]
    some = [
        replace(done(each, value=4 + place % 2), id=f"0/t/{place}")
        for place, each in enumerate([HONEST, BREAK] * 8)
    ]
    assert len(hacks._groups(arm, some)) == 8
    assert len(hacks._groups(replace(arm, without_broken=False), some)) == 16


def test_what_was_sampled_is_what_the_trainer_scores(tmp_path: Path) -> None:
    torch.manual_seed(0)
    decoder = Decoder(SHAPE)
    sessions = desk.play(
        decoder, list(islice(desk.tickets(1), 400)), torch.Generator().manual_seed(1), Rules()
    )
    model = DecoderModel(decoder, tmp_path)
    asked = [each for each in sessions if len(each.turns) == 2]
    assert asked
    for session in [*asked, *sessions[:20]]:
        for sample in samples_of(session.turns, 1.0):
            (scored,) = model.logprobs(rows_of(model, [sample], PolicyConfig()))
            noted = [x for x, sampled in zip(sample.logprobs, sample.mask, strict=True) if sampled]
            assert scored.tolist() == pytest.approx(noted, abs=1e-5)


def test_a_lesson_says_what_the_ticket_shows() -> None:
    for ticket in islice(desk.tickets(3), 50):
        row = desk.lesson(ticket, Random(1))
        assert list(row.ids[: len(ticket.prompt)]) == ticket.prompt and len(row.ids) == len(row.weights)
        shown = [value for key, value in ticket.facts if key == ticket.asked]
        assert len(shown) == {"easy": 1, "hard": 0, "ambiguous": 2}[ticket.kind]
