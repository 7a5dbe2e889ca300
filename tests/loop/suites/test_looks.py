"""`ostinato bench looks` on a run folder: real weights, a real record."""

import json
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.store.builders import group, session, turn
from tests.store.builders import version as row

from ostinato.cli import main
from ostinato.config import dump
from ostinato.loop.config import RunConfig
from ostinato.loop.live_config import LiveConfig
from ostinato.loop.run import START, Run
from ostinato.loop.suites.looks import look_of
from ostinato.model.checkpoint import load, save
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Ledger, Stage, Store
from ostinato.sync import Publisher
from ostinato.train.batch import ScoredRow, counted_scores
from ostinato.train.config import TrainerConfig
from ostinato.types import Completion, Ending, FinishReason, Signal, SignalKind, Turn

USERS, EACH = 12, 10
OLD = time.time() - 40 * 86_400


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Version 0 did the sessions; version 1 is a little different, version 2 far away."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(["def alpha(a, b): return a - b"], 300, [])
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=16, layers=1, heads=2, kv_heads=2, head_dim=8,
        intermediate_size=16,
    )  # fmt: skip
    decoder, run = Decoder(config), Run(directory=tmp_path / "run")
    save(run.checkpoint(START), decoder, tokenizer, version=0)
    run.config.write_text(dump(RunConfig()))
    publisher = Publisher(run.open_objects())
    publisher.anchor(0, decoder.state_dict())
    with closing(run.open_store()) as store:
        record(store, decoder)
    for number, by in ((1, 0.02), (2, 3.0)):
        moved = {name: each + by * torch.randn_like(each) for name, each in decoder.state_dict().items()}
        publisher.delta(number, moved)
    return run


def record(store: Store, decoder: Decoder) -> None:
    """Record sessions of people who agreed, and of each kind that a look leaves out."""
    for number in range(USERS * EACH):
        user = f"u{number % USERS}"
        store.accounts.set_consent(user=user, granted=True, by=user)
        add(store, f"s{number}", sampled(decoder, f"s{number}"), user, kept=number % 3 > 0)
    add(store, "trained", sampled(decoder, "trained"), "u0")
    add(store, "young", replace(sampled(decoder, "young"), started_at=time.time()), "u0")
    add(store, "edited", replace(sampled(decoder, "edited"), untrainable="edited"), "u0")
    add(store, "disagreed", sampled(decoder, "disagreed"), "nobody")
    ledger, one = Ledger(store), group("g", session_id="trained")
    ledger.reserve(one.prompt, Stage.PRACTICE)
    ledger.offer(one)
    ledger.commit(row(1, "g"))


def sampled(decoder: Decoder, session_id: str) -> Turn:
    """Return a turn whose tokens the decoder drew."""
    ids = [5, 6, 7]
    for _ in range(4):
        with torch.no_grad():
            hidden, _ = decoder.hidden(torch.tensor([ids]))
            logits = decoder.head(hidden[:, -1])
        ids.append(int(torch.multinomial(torch.softmax(logits[0], -1), 1)))
    scored = ScoredRow(ids=tuple(ids), counted=(False, False, False, True, True, True, True))
    with torch.no_grad():
        logprobs = tuple(counted_scores(decoder, [scored]).logprobs_N.tolist())
    completion = Completion(
        ids=tuple(ids[3:]), logprobs=logprobs, versions=(0,) * 4, finish=FinishReason.STOP
    )
    return replace(turn(0, session_id), prompt_ids=(5, 6, 7), completion=completion, started_at=OLD)


def add(store: Store, id: str, done: Turn, user: str, *, kept: bool = True) -> None:
    kind = SignalKind.EDIT_KEPT if kept else SignalKind.EDIT_REVERTED
    signal = Signal(session_id=id, kind=kind, value=1.0, observed_at=done.started_at + 60)
    about = session(id, user=user, consent=True, ending=Ending.FINISHED, started_at=done.started_at)
    store.record([done], [signal], [about])


def test_candidates_are_ordered_by_sessions_that_none_was_trained_on(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "looks", "--directory", str(run.directory)]
    assert main([*command, "--versions", "0", "1", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["sessions"], found["trained_on"], found["young"], found["unscored"]) == (120, 1, 1, 1)
    looks = {each["version"]: each for each in found["looks"]}
    assert looks[0]["gain"]["estimate"] == pytest.approx(0.0, abs=1e-6)
    assert looks[0]["sessions"] == pytest.approx(120) and looks[0]["users"] == pytest.approx(USERS)
    assert looks[1]["gain"] is not None and looks[1]["sessions"] < 120
    assert looks[2]["gain"] is None and found["looks"][-1]["version"] == 2 and found["first"] is None
    assert main([*command, "--versions", "1", "2", "--sessions", "20"]) == 0
    said = capsys.readouterr().out
    assert "19 recorded sessions that no version was trained on" in said
    assert "version 2: not known" in said and "promotes none" in said


def test_a_gate_looks_at_what_had_settled_before_its_cycle_began(run: Run) -> None:
    with closing(run.open_store()) as store:
        at: Any = SimpleNamespace(run=run, store=store, config=RunConfig())
        seen = look_of(at, 1, time.time())
        assert seen is not None and seen.known and 100 < seen.sessions < 120
        assert seen.words.startswith(f"{seen.gain} reward a session; worth ")
        one = sampled(load(run.checkpoint(START))[0], "newer")
        for number in range(RunConfig().live.looks):  # the newest sessions are of this cycle
            began = OLD + 86_400 + number
            add(store, f"newer{number}", replace(one, session_id=f"newer{number}", started_at=began), "u0")
        assert look_of(at, 1, OLD + 86_400 - 1) == seen
        unseen = look_of(at, 1, OLD)
        assert unseen is not None and unseen.words.startswith("no session to look at")
        for config in (RunConfig(live=LiveConfig(looks=0)), RunConfig(trainer=TrainerConfig(kind="fsdp"))):
            at.config = config
            assert look_of(at, 1, time.time()) is None


def test_what_is_wrong_is_said(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "looks", "--directory", str(run.directory), "--versions"]
    assert main([*command, "1", "1"]) == 2 and "names each once" in capsys.readouterr().err
    assert main([*command, "17"]) == 2 and "17" in capsys.readouterr().err
