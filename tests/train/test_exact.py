"""The trained tokens are the sampled ones: engine, turn, sample and learner agree on every probability."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.model.decoder import Decoder
from ostinato.train.batch import counted_scores
from ostinato.train.config import PolicyConfig
from ostinato.train.objective import loss as objective
from ostinato.train.policy import SampleLoss, sample_loss, scored
from ostinato.train.samples import samples_of, trainable
from ostinato.types import GenerateRequest, Sample, Sampling, Turn

MIXED = (0.3, 0.7, 1.0, 1.6)


async def sampled(decoder: Decoder, temperatures: Sequence[float]) -> list[Turn]:
    """One session with a turn for each temperature, recorded as the gateway does it."""
    engine, turns, history = EmbeddedEngine(decoder, version=3, max_len=256), list[Turn](), tuple[int, ...]()
    for index, temperature in enumerate(temperatures):
        history += (index + 1, 5, 9)
        request = GenerateRequest(
            request_id=f"s/{index}",
            session_id="s",
            prompt_ids=history,
            stop_ids=(),
            max_tokens=24,
            sampling=Sampling(temperature=temperature, seed=index),
        )
        completion = await engine.generate(request)
        turn = Turn(
            session_id="s",
            index=index,
            segment=0,
            arm="a",
            prompt_ids=history,
            completion=completion,
            started_at=0.0,
            latency_s=0.0,
            sampling=request.sampling,
        )
        turns.append(turn)
        history += completion.ids
    await engine.aclose()
    return turns


def loss_of(decoder: Decoder, samples: list[Sample], constant: float) -> SampleLoss:
    logprobs = counted_scores(decoder, [scored(sample) for sample in samples]).logprobs_N
    return sample_loss(samples, logprobs, constant, objective.loss_of(PolicyConfig()))


def ratios(decoder: Decoder, samples: list[Sample]) -> torch.Tensor:
    """pi / mu of every sampled token, as the learner computes it."""
    return loss_of(decoder, samples, 1.0).deltas_N.exp()


@pytest.mark.parametrize("temperatures", [(0.3, 0.3), (0.7, 0.7), (1.0, 1.0), MIXED], ids=str)
def test_the_ratio_is_one_on_the_weights_that_sampled(
    decoder: Decoder, temperatures: tuple[float, ...]
) -> None:
    turns = asyncio.run(sampled(decoder, temperatures))
    found = ratios(decoder, samples_of(turns, 1.0))
    assert len(found) == 24 * len(temperatures)
    torch.testing.assert_close(found, torch.ones_like(found), rtol=0, atol=5e-4)


def test_at_another_temperature_than_its_own_the_ratio_is_not_one(decoder: Decoder) -> None:
    (sample,) = samples_of(asyncio.run(sampled(decoder, (0.3, 0.3))), 1.0)
    wrong = replace(sample, temperatures=(1.0,) * len(sample.ids))
    assert (ratios(decoder, [wrong]) - 1).abs().max() > 0.1


def test_the_gradient_is_that_of_the_tempered_policy(decoder: Decoder) -> None:
    """The gradient by autograd through a plain softmax(logits / T), written out."""
    (sample,) = samples_of(asyncio.run(sampled(decoder, (0.3,))), 0.5)
    decoder.zero_grad()
    loss_of(decoder, [sample], 10.0)[0].backward()  # type: ignore[no-untyped-call]
    ours = [parameter.grad.clone() for parameter in decoder.parameters() if parameter.grad is not None]
    decoder.zero_grad()
    logits, _ = decoder(torch.tensor([sample.ids]))
    logprobs = torch.log_softmax(logits[0, :-1] / 0.3, -1)
    chosen = logprobs.gather(-1, torch.tensor(sample.ids[1:])[:, None])[:, 0]
    (-0.5 * chosen[torch.tensor(sample.mask[1:])].sum() / 10.0).backward()
    for mine, parameter in zip(ours, decoder.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, rtol=2e-3, atol=1e-6)


def test_greedy_turns_are_recorded_and_not_trained(decoder: Decoder) -> None:
    """Their number is the log-probability of temperature 1, which docs/engine.md states."""
    turns = asyncio.run(sampled(decoder, (1.0, 0.0)))
    kept, others = trainable(turns)
    assert [turn.index for turn in kept] == [0] and list(others) == ["sampled greedily"]
    (greedy,) = others["sampled greedily"]
    ids = greedy.prompt_ids + greedy.completion.ids
    with torch.no_grad():
        logits, _ = decoder(torch.tensor([ids]))
    start = len(greedy.prompt_ids)
    rows = torch.log_softmax(logits[0, start - 1 : -1], -1)
    chosen = rows.gather(-1, torch.tensor(greedy.completion.ids)[:, None])[:, 0]
    torch.testing.assert_close(chosen, torch.tensor(greedy.completion.logprobs), rtol=0, atol=1e-4)
    assert greedy.completion.ids == tuple(rows.argmax(-1).tolist())
