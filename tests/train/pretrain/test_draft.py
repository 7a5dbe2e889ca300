"""A draft learns the distribution of the model beside it, which learns as if there were none."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.pretrain.test_run import home, settings, stops, weights

from ostinato.data.corpus import TextRow
from ostinato.model.checkpoint import load
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.mtp import FOLDER, Mtp, load_draft
from ostinato.train.config import TrainerConfig
from ostinato.train.local import PackedAttention
from ostinato.train.packing import Pack
from ostinato.train.pretrain import draft
from ostinato.train.pretrain.config import PretrainPhase, PretrainProcess
from ostinato.train.pretrain.draft import DEPTH, DraftTraining, rows_of
from ostinato.train.pretrain.rows import text_pack
from ostinato.train.pretrain.run import train

__all__ = ["home"]
IDS = torch.randint(0, 24, (40,), generator=torch.Generator().manual_seed(0)).numpy()


def models() -> tuple[Decoder, Mtp]:
    torch.manual_seed(0)
    config = ModelConfig(
        vocab_size=24, hidden_size=32, layers=2, heads=2, kv_heads=1, head_dim=16, intermediate_size=64
    )
    decoder = Decoder(config)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return decoder, Mtp.beside(decoder, 0)


def text(*lengths: int) -> Pack:
    """Return rows of so many tokens, each of one document."""
    return text_pack([TextRow(ids=IDS[:length], starts=(0,)) for length in lengths], confined=True)


def accumulated(training: DraftTraining, *packs: Pack) -> list[torch.Tensor]:
    """Return the gradients of all packs."""
    training.mtp.zero_grad()
    total = sum(len(rows_of(each)) for each in packs)
    for each in packs:
        positions, cache = each.positions_T[None], PackedAttention(each)
        states = training.decoder.hidden(each.ids_T[None], positions=positions, cache=cache)[0][0]
        training.accumulate(each, states, total)
    return [parameter.grad.clone() for parameter in training.mtp.parameters() if parameter.grad is not None]


def test_the_loss_is_the_cross_entropy_with_the_whole_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, mtp = models()
    training, one = DraftTraining(decoder, mtp), text(20)
    whole = accumulated(training, one)
    figures: dict[str, Any] = training.figures()
    with torch.no_grad():
        states = decoder.norm(decoder.hidden(one.ids_T[None])[0])
        after = mtp(decoder, states, one.ids_T.roll(-1)[None], one.positions_T[None])
        said = mtp.head(decoder, after)[0, :-1]
        target = decoder(one.ids_T[None])[0][0, 1:].softmax(-1)
    nats = -(target * said.log_softmax(-1)).sum(-1).mean()
    shared = torch.minimum(target, said.softmax(-1)).sum(-1).mean()
    assert figures["draft_loss"] == pytest.approx(float(nats), rel=1e-5)
    assert figures["draft_acceptance"][0] == pytest.approx(float(shared), rel=1e-5)
    assert all(parameter.grad is None for parameter in decoder.parameters())
    monkeypatch.setattr(draft, "LOGITS", 2 * 24 * 3)  # three rows at a time
    for part, all_at_once in zip(accumulated(training, one), whole, strict=True):
        torch.testing.assert_close(part, all_at_once, rtol=1e-4, atol=1e-6)


def test_rows_learn_alike_alone_and_packed() -> None:
    training = DraftTraining(*models())
    apart, together = accumulated(training, text(20), text(30)), accumulated(training, text(20, 30))
    for one, other in zip(apart, together, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_it_learns_to_foretell_the_model_at_every_depth() -> None:
    training, found = DraftTraining(*models()), list[Any]()
    for _ in range(150):
        accumulated(training, text(40))
        found.append(training.figures()["draft_acceptance"])
        training.update(1e-2, 1.0)
    assert max(found[0]) < 0.7 and min(found[-1]) > 0.9


PHASE = {"length": 64, "tokens": 64 * 4 * 4, "batch_tokens": 256, "learning_rate": 3e-3}


def phases(*drafts: str) -> Any:
    return {"phases": tuple(PretrainPhase(**PHASE, draft=each) for each in drafts)}  # type: ignore[arg-type]


def drafted(out: Path) -> bytes:
    return (out / FOLDER / "model.safetensors").read_bytes()


def test_the_model_learns_as_if_there_were_no_draft(home: Path, tmp_path: Path) -> None:
    train(settings(home, tmp_path / "plain", **phases("none", "none")), lambda: False)
    train(settings(home, tmp_path / "joint", **phases("none", "joint")), lambda: False)
    train(settings(home, tmp_path / "alone", **phases("alone")), lambda: False)
    assert weights(tmp_path / "joint") == weights(tmp_path / "plain")
    assert weights(tmp_path / "alone") == weights(home / "start")
    assert drafted(tmp_path / "joint") != drafted(tmp_path / "alone")
    lines = [
        json.loads(line) for line in (tmp_path / "joint.run" / "pretrain.jsonl").read_text().splitlines()
    ]
    last = next(line for line in reversed(lines) if "draft_loss" in line)
    assert len(last["draft_acceptance"]) == DEPTH
    decoder, tokenizer, _ = load(tmp_path / "joint")
    load_draft(tmp_path / "joint", decoder.config, tokenizer=tokenizer.digest)
    # One that is there is trained further.
    more = {"start": tmp_path / "joint"} | phases("alone")
    train(settings(home, tmp_path / "more", **more), lambda: False)
    assert weights(tmp_path / "more") == weights(tmp_path / "joint")


@pytest.mark.parametrize("after", [1, 5, 7])
def test_killed_it_ends_in_the_weights_of_one_that_was_not(home: Path, tmp_path: Path, after: int) -> None:
    train(settings(home, tmp_path / "whole", **phases("none", "joint")), lambda: False)
    killed = settings(home, tmp_path / "killed", **phases("none", "joint"))
    train(killed, stops(after))
    assert not (tmp_path / "killed").exists()
    train(killed, lambda: False)
    assert drafted(tmp_path / "killed") == drafted(tmp_path / "whole")
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


def test_settings_that_cannot_be_are_refused(home: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leave it behind"):
        settings(home, tmp_path / "out", **phases("joint", "none"))
    fsdp: dict[str, Any] = {"trainer": TrainerConfig(kind="fsdp")}
    with pytest.raises(ValueError, match="local trainer"):
        PretrainProcess(start=home, corpus=home, out=tmp_path / "out", **fsdp, **phases("alone"))
