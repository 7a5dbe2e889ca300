import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.train.conftest import VOCAB

from ostinato.model.decoder import Decoder
from ostinato.train.base import StepError
from ostinato.train.batch import counted_scores
from ostinato.train.config import PolicyConfig
from ostinato.train.local import DecoderModel
from ostinato.train.objective.corrections import correction_of
from ostinato.train.policy import SampleLoss, advantage_step, policy_step, sample_loss, scored
from ostinato.types import Group, Sample

MakeSample = Callable[..., Sample]
CONFIG = PolicyConfig()


def loss_of(decoder: Decoder, samples: list[Sample], constant: float, config: PolicyConfig) -> SampleLoss:
    logprobs = counted_scores(decoder, [scored(sample) for sample in samples]).logprobs_N
    return sample_loss(samples, logprobs, constant, correction_of(config))


def gradients(decoder: Decoder, samples: list[Sample], sessions: int) -> list[torch.Tensor]:
    decoder.zero_grad()
    loss_of(decoder, samples, sessions * CONFIG.tokens_per_session, CONFIG)[0].backward()  # type: ignore[no-untyped-call]
    return [p.grad.clone() for p in decoder.parameters() if p.grad is not None]


@torch.no_grad()
def total_logprob(decoder: Decoder, sample: Sample) -> float:
    logits, _ = decoder(torch.tensor([sample.ids]))
    logprobs = torch.log_softmax(logits[0, :-1], -1).gather(-1, torch.tensor(sample.ids[1:])[:, None])[:, 0]
    return float(logprobs[torch.tensor(sample.mask[1:])].sum())


@torch.no_grad()
def on_policy(decoder: Decoder, sample: Sample) -> Sample:
    """The sample with the logprobs that `decoder` itself gives."""
    logits, _ = decoder(torch.tensor([sample.ids]))
    logprobs = torch.log_softmax(logits[0, :-1], -1).gather(-1, torch.tensor(sample.ids[1:])[:, None])[:, 0]
    return replace(sample, logprobs=(0.0, *logprobs.tolist()))


def test_the_gradient_of_a_batch_is_the_sum_over_its_rows(decoder: Decoder, make_sample: MakeSample) -> None:
    samples = [make_sample(i, length=5 + 3 * i, advantage=(-1) ** i * 0.5) for i in range(6)]
    whole = gradients(decoder, samples, 6)
    parts = [gradients(decoder, [sample], 6) for sample in samples]
    for i, gradient in enumerate(whole):
        torch.testing.assert_close(sum(part[i] for part in parts), gradient, rtol=1e-3, atol=1e-6)


def test_on_policy_the_gradient_is_plain_reinforce(decoder: Decoder, make_sample: MakeSample) -> None:
    sample = on_policy(decoder, make_sample(advantage=0.6))
    ours = gradients(decoder, [sample], 1)
    decoder.zero_grad()
    logits, _ = decoder(torch.tensor([sample.ids]))
    logprobs = torch.log_softmax(logits[0, :-1], -1).gather(-1, torch.tensor(sample.ids[1:])[:, None])[:, 0]
    (-0.6 * logprobs[torch.tensor(sample.mask[1:])].sum() / CONFIG.tokens_per_session).backward()
    for mine, parameter in zip(ours, decoder.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, rtol=1e-3, atol=1e-6)


def test_observed_tokens_get_no_gradient(decoder: Decoder, make_sample: MakeSample) -> None:
    """Tokens that were only observed, beyond the last sampled one, can be anything."""
    sample = make_sample(length=8)
    tail = tuple(range(5))
    longer, other = (
        replace(
            sample,
            ids=sample.ids + ids,
            mask=sample.mask + (False,) * 5,
            logprobs=sample.logprobs + (0.0,) * 5,
            versions=sample.versions + (0,) * 5,
            temperatures=sample.temperatures + (1.0,) * 5,
        )
        for ids in (tail, tail[::-1])
    )
    for a, b in zip(gradients(decoder, [longer], 1), gradients(decoder, [other], 1), strict=True):
        torch.testing.assert_close(a, b)


def test_a_step_makes_good_rows_likelier_and_bad_rows_less_likely(
    decoder: Decoder, make_sample: MakeSample, tmp_path: Path
) -> None:
    good, bad = (on_policy(decoder, make_sample(i, advantage=a)) for i, a in ((1, 0.5), (2, -0.5)))
    before = total_logprob(decoder, good), total_logprob(decoder, bad)
    stats = advantage_step(DecoderModel(decoder, tmp_path), [good, bad], 2, 1e-3, CONFIG, version=0)
    assert total_logprob(decoder, good) > before[0] and total_logprob(decoder, bad) < before[1]
    assert stats.ratio == pytest.approx(1.0, abs=1e-4) and stats.cut == 0 and stats.rows == 2


def test_rows_without_advantage_cost_nothing_and_change_nothing(
    decoder: Decoder, make_sample: MakeSample, tmp_path: Path
) -> None:
    before = [parameter.detach().clone() for parameter in decoder.parameters()]
    stats = advantage_step(
        DecoderModel(decoder, tmp_path), [make_sample(advantage=0.0)], 1, 1e-3, CONFIG, version=0
    )
    assert (stats.rows, stats.tokens, stats.loss) == (0, 0, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(before, decoder.parameters(), strict=True))


def test_the_constant_is_the_number_of_sessions_not_what_they_say(
    decoder: Decoder, make_sample: MakeSample
) -> None:
    sample = make_sample()
    one, four = (
        loss_of(decoder, [sample], sessions * CONFIG.tokens_per_session, CONFIG)[0].item()
        for sessions in (1, 4)
    )
    assert one == pytest.approx(4 * four)


def test_stale_tokens_are_capped(decoder: Decoder, make_sample: MakeSample, tmp_path: Path) -> None:
    stats = advantage_step(
        DecoderModel(decoder, tmp_path), [make_sample(logprob=-20.0)], 1, 1e-3, CONFIG, version=0
    )
    assert stats.cut == 1.0 and stats.ratio > CONFIG.ratio_cap


@pytest.mark.parametrize("name", ["tokens_per_session", "ratio_cap", "largest_gradient"])
def test_a_setting_that_makes_no_sense_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        PolicyConfig(**{name: 0})


def test_the_settings_do_what_they_say(decoder: Decoder, make_sample: MakeSample, tmp_path: Path) -> None:
    samples = [make_sample(i, logprob=-20.0) for i in range(3)]
    loss, deltas, _ = loss_of(decoder, samples, 1.0, CONFIG)
    higher = loss_of(decoder, samples, 1.0, PolicyConfig(ratio_cap=3.0)).loss
    assert deltas.exp().min() > 3 and higher.item() == pytest.approx(1.5 * loss.item())
    before = decoder.embedding.detach().clone()
    model = DecoderModel(decoder, tmp_path)
    model.optimizer = torch.optim.SGD(  # type: ignore[assignment]
        [{"params": list(decoder.parameters()), "scale": 1.0}], lr=1.0
    )
    stats = advantage_step(model, samples, 3, 1.0, PolicyConfig(largest_gradient=1e-3), version=0)
    assert stats.gradient > 1e-3 and (decoder.embedding - before).norm() <= 1.001e-3


def test_the_size_of_a_piece_changes_no_gradient(
    decoder: Decoder, make_sample: MakeSample, tmp_path: Path
) -> None:
    rows = [scored(make_sample(i, length=5 + i)) for i in range(7)]
    norms = [
        DecoderModel(decoder, tmp_path, piece_tokens=tokens).logprobs(rows) for tokens in (1, 25, 10_000)
    ]
    for other in norms[1:]:
        for one, two in zip(norms[0], other, strict=True):
            torch.testing.assert_close(one, two)


def test_a_reward_that_makes_no_finite_gradient_changes_nothing(
    decoder: Decoder, make_sample: MakeSample, tmp_path: Path
) -> None:
    before = [parameter.detach().clone() for parameter in decoder.parameters()]
    model = DecoderModel(decoder, tmp_path)
    with pytest.raises(StepError, match="not finite"):
        advantage_step(model, [make_sample(advantage=1e38, logprob=-20.0)], 1, 1e-3, CONFIG, version=0)
    assert all(torch.equal(a, b) for a, b in zip(before, decoder.parameters(), strict=True))
    assert model.steps == 0 and all(parameter.grad is None for parameter in decoder.parameters())


def test_a_session_longer_than_the_context_is_named_before_anything_is_computed(
    decoder: Decoder, make_sample: MakeSample, tmp_path: Path
) -> None:
    model = DecoderModel(decoder, tmp_path)
    long = make_sample(length=model.context + 1, session="endless")
    group = Group(id="g", prompt="p", samples=(make_sample(), long), rewards=(1.0, 0.0))
    with pytest.raises(StepError, match=f"session endless is a row of {model.context + 1} tokens"):
        policy_step(model, [group], 1e-3, CONFIG, version=0)
    assert model.steps == 0 and all(parameter.grad is None for parameter in decoder.parameters())


def test_tokens_are_measured_by_how_many_versions_ago_they_were_sampled(
    decoder: Decoder, make_sample: MakeSample, tmp_path: Path
) -> None:
    fresh, old = on_policy(decoder, make_sample(1, version=7)), make_sample(2, version=4)
    stats = advantage_step(DecoderModel(decoder, tmp_path), [fresh, old], 2, 1e-3, CONFIG, version=7)
    now, before = stats.gaps
    assert (now.gap, now.tokens, before.gap, before.tokens) == (0, sum(fresh.mask), 3, sum(old.mask))
    assert now.mismatch.most < 1e-4 < before.mismatch.p50 and now.effective > 0.999
    assert stats.tokens == now.tokens + before.tokens and stats.mismatch is not None
    assert 0 < (stats.entropy or 0) < math.log(VOCAB)
