"""Covers the log-probabilities of engine/remote/engine.py too: checkpoints here, and a server of one."""

from pathlib import Path

import pytest
import torch
from tests.engine.remote.fake_vllm import LOGPROB, fake_vllm

from ostinato.bench.select.base import NotPossibleError, Prompt, SelectError, Window
from ostinato.bench.select.candidates import open_local, open_served
from ostinato.engine.base import EngineError
from ostinato.engine.remote.engine import RemoteEngine
from ostinato.model.checkpoint import load, save
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tokenizer import Tokenizer

TEXT = "the file holds the answer\n" * 3


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    tokenizer = Tokenizer.train([TEXT], 300)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=16, layers=1, heads=2, kv_heads=2, head_dim=8,
        intermediate_size=16, max_positions=96,
    )  # fmt: skip
    save(tmp_path / "model", Decoder(config), tokenizer, version=0)
    return tmp_path / "model"


async def test_a_checkpoint_continues_greedily_and_scores_as_its_forward_pass_does(checkpoint: Path) -> None:
    decoder, tokenizer, _ = load(checkpoint)
    ids = tuple(tokenizer.encode(TEXT))[:40]
    async with open_local("tiny", checkpoint, 64) as model:
        assert (model.context, model.read) == (64, 0)
        (scores,) = await model.logprobs([Window(ids=ids, first=7)])
        asked = [Prompt(text="the file", end="\n", most=12), Prompt(text="the", end="\n", most=5)]
        answers = await model.complete(asked)
        assert answers == await model.complete(asked)
        assert all(len(answer) <= each.most for answer, each in zip(answers, asked, strict=True))
        assert model.sampled > 0 and model.read > len(ids)
        with pytest.raises(NotPossibleError, match="its context 64"):
            await model.complete([Prompt(text=TEXT * 20, end="\n", most=5)])
    with torch.no_grad():
        hidden, _ = decoder.hidden(torch.tensor([ids[:-1]]))
        plain = torch.log_softmax(decoder.head(hidden[0]), -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert scores == pytest.approx(plain[6:].tolist(), abs=1e-5)


async def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SelectError, match="can be served by vLLM"):
        async with open_local("nothing", tmp_path, 64):
            pass


async def test_a_server_answers_and_scores_and_one_that_tells_nothing_of_prompts_is_named(
    checkpoint: Path,
) -> None:
    tokenizer = Tokenizer.load(checkpoint)
    window = Window(ids=(5, 6, 7, 8), first=2)
    said = tokenizer.encode("answer\nand more")
    async with (
        fake_vllm(tokenizer, said) as (url, bodies),
        open_served("served", url, checkpoint, "") as model,
    ):
        assert await model.complete([Prompt(text="the", end="\n", most=40)]) == ["answer"]
        assert await model.logprobs([window]) == [[LOGPROB] * 2]
    assert bodies[-1]["prompt"] == [5, 6, 7, 8] and bodies[-1]["prompt_logprobs"] == 0
    async with (
        fake_vllm(tokenizer, said, prompt_logprobs="none") as (url, _),
        open_served("served", url, checkpoint, "") as model,
    ):
        with pytest.raises(NotPossibleError, match="tells no log-probabilities of a prompt"):
            await model.logprobs([window])
    async with fake_vllm(tokenizer, said, prompt_logprobs="others") as (url, _):
        with pytest.raises(EngineError, match="are not of the ids that were sent"):
            await RemoteEngine.connect(url, tokenizer)
