"""An exported MTP layer in a real vLLM: as many of its drafts are accepted as our own layer foretells.

Covers model/mtp_export.py.
"""

import asyncio
import json
from pathlib import Path

import pytest
import torch
from tests.engine.contract import MAX_LEN, SIZES
from tests.engine.toolbox import decoder, request
from tests.vllm.install import PYTHON, missing
from tests.vllm.test_vllm import ENVIRONMENT

from ostinato import cli
from ostinato.engine.vllm.engine import VllmEngine
from ostinato.model.checkpoint import save
from ostinato.model.decoder import Decoder
from ostinato.model.mtp import Mtp, save_draft
from ostinato.model.tokenizer import Tokenizer
from ostinato.types import Completion, GenerateRequest

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]
LENGTH = 90


def models() -> tuple[Decoder, Mtp]:
    """Return a model whose next token follows mostly from the last one, and a layer that knows it half."""
    model = decoder(3, **(SIZES | {"experts": 0, "tied": False}))
    mtp, hidden = Mtp.beside(model, 1), model.config.hidden_size
    with torch.no_grad():
        for layer in (*model.layers, mtp.layer):
            layer.attention.out.mul_(0.3)
            layer.mlp.down.mul_(0.3)
        mtp.join.mul_(0.3)
        mtp.join[:, :hidden] += torch.eye(hidden)
    return model, mtp


@torch.no_grad()
def foretold(model: Decoder, mtp: Mtp, asked: GenerateRequest, got: Completion) -> int:
    """Return how many drafts, one a step, are the model's own next tokens."""
    ids = torch.tensor([asked.prompt_ids + got.ids])
    states, positions = model.norm(model.hidden(ids)[0]), torch.arange(ids.shape[1] - 1)[None]
    drafts = mtp.head(model, mtp(model, states[:, :-1], ids[:, 1:], positions))[0].argmax(-1)
    at, accepted = len(asked.prompt_ids) - 1, 0
    while at + 2 < ids.shape[1]:
        right = bool(drafts[at] == ids[0, at + 2])
        accepted, at = accepted + right, at + 1 + right
    return accepted


async def test_vllm_accepts_what_our_layer_foretells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model, mtp), tokenizer = models(), Tokenizer.train(["calc.py"], 265)
    meta = save(tmp_path / "model", model, tokenizer, version=0)
    save_draft(tmp_path / "model", mtp, trunk=meta.digest, tokenizer=tokenizer.digest)
    exported = ["weights", "draft", str(tmp_path / "model"), str(tmp_path / "draft")]
    assert cli.main([*exported, "--tokens", "1", "--json"]) == 0
    engine = await VllmEngine.start(
        tmp_path / "model", tmp_path / "run", python=str(PYTHON), max_len=MAX_LEN, slots=1,
        arguments=json.loads(capsys.readouterr().out), environment=ENVIRONMENT,
    )  # fmt: skip
    try:
        before, expected = engine.stats(), 0
        for number in range(8):
            asked = request(number, max_tokens=LENGTH, temperature=0.0)
            got = await engine.generate(asked)
            expected += foretold(model, mtp, asked, got)
        while engine.stats()["drafted"] == before["drafted"]:
            await asyncio.sleep(0.1)
        accepted = engine.stats()["accepted"] - before["accepted"]
    finally:
        await engine.aclose()
    # A draft beyond the last token counts or not, as the step happens to end.
    assert 0.1 * 8 * LENGTH < expected < 0.45 * 8 * LENGTH and abs(accepted - expected) <= 8
