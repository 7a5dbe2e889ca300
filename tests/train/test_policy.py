import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.train.conftest import VOCAB

from ostinato.model.decoder import Decoder
from ostinato.train.base import BEYOND_CONTEXT, NO_GRADIENT, StepError, StepStats
from ostinato.train.batch import Row, counted_scores
from ostinato.train.config import PolicyConfig
from ostinato.train.local import DecoderModel
from ostinato.train.losses import gradient_norm
from ostinato.train.objective import loss as objective
from ostinato.train.policy import (
    PolicyLoss,
    SampleLoss,
    advantage_step,
    policy_step,
    sample_loss,
    scored,
    supervised_step,
)
from ostinato.types import Group, Sample

MakeSample = Callable[..., Sample]
CONFIG = PolicyConfig()


def loss_of(decoder: Decoder, samples: list[Sample], constant: float, config: PolicyConfig) -> SampleLoss:
    logprobs = counted_scores(decoder, [scored(sample) for sample in samples]).logprobs_N
    return sample_loss(samples, logprobs, constant, objective.loss_of(config))


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


def group_of(name: str, *samples: Sample) -> Group:
    return Group(id=name, prompt=name, samples=samples, rewards=(0.5,) * len(samples))


@pytest.mark.parametrize("k1", [0.0, 0.1])
def test_a_step_leaves_out_groups_that_cannot_be_trained_on_as_if_they_had_not_been_there(
    decoder: Decoder, make_sample: MakeSample, tmp_path: Path, k1: float
) -> None:
    config = PolicyConfig(k1=k1)
    models = [DecoderModel(copy.deepcopy(decoder), tmp_path / name) for name in ("ours", "theirs")]
    good = [
        group_of(
            f"good{i}", make_sample(i, session=f"a{i}"), make_sample(-i, session=f"b{i}", advantage=-1.0)
        )
        for i in (1, 2)
    ]
    endless = group_of("endless", make_sample(3), make_sample(4, length=models[0].context + 1))
    steep = group_of("steep", make_sample(5, session="c"), make_sample(6, advantage=1e38, logprob=-20.0))
    flat = group_of("flat", make_sample(7, session="d", temperature=1e-44), make_sample(8, session="e"))
    for each in models:
        each.refer(decoder.state_dict())
    batch = [endless, good[0], steep, flat, good[1]]
    stats = policy_step(models[0], batch, 1e-3, config, version=0)
    assert stats.dropped == {"endless": BEYOND_CONTEXT, "steep": NO_GRADIENT, "flat": NO_GRADIENT}
    expected = policy_step(models[1], good, 1e-3, config, version=0)
    assert replace(stats, dropped={}) == expected and models[0].steps == 1
    for ours, theirs in zip(models[0].decoder.parameters(), models[1].decoder.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_batch_of_such_groups_alone_changes_nothing(
    decoder: Decoder, make_sample: MakeSample, tmp_path: Path
) -> None:
    model, before = DecoderModel(decoder, tmp_path), copy.deepcopy(decoder)
    long = group_of("long", make_sample(length=model.context + 1))
    steep = group_of("steep", make_sample(advantage=1e38, logprob=-20.0))
    stats = policy_step(model, [long, steep], 1e-3, CONFIG, version=0)
    assert stats == StepStats(dropped={"long": BEYOND_CONTEXT, "steep": NO_GRADIENT})
    assert model.steps == 0 and all(parameter.grad is None for parameter in decoder.parameters())
    assert all(map(torch.equal, before.parameters(), decoder.parameters()))


def test_gradients_of_which_only_the_sum_is_not_finite_drop_them_all(
    decoder: Decoder, make_sample: MakeSample, tmp_path: Path
) -> None:
    """Each group's norm is below the largest float32 here, and two equal ones together are above it."""
    model = DecoderModel(decoder, tmp_path)
    one = on_policy(decoder, make_sample())
    model.accumulate([scored(one)], PolicyLoss([one], 2, CONFIG))
    norm = gradient_norm(list(decoder.parameters()), math.inf)
    assert model.discard()
    # The norm squares its parts, so it overflows at the root of the largest number.
    steep = replace(one, advantage=0.7 * math.sqrt(torch.finfo(torch.float32).max) / norm)
    groups = [group_of(name, replace(steep, session_id=name)) for name in "ab"]
    stats = policy_step(model, groups, 1e-3, CONFIG, version=0)
    assert stats.dropped == {"a": NO_GRADIENT, "b": NO_GRADIENT} and model.steps == 0


def test_a_lesson_longer_than_the_context_is_named_before_anything_is_computed(
    decoder: Decoder, tmp_path: Path
) -> None:
    model = DecoderModel(decoder, tmp_path)
    length = model.context + 1
    row = Row(ids=(1,) * length, weights=(1.0,) * length, session_id="endless")
    with pytest.raises(StepError, match=f"session endless is a row of {length} tokens"):
        supervised_step(model, [row], 1e-3)
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


def test_a_margin_that_no_routes_read_is_refused() -> None:
    with pytest.raises(ValueError, match="route_margin is set and routes is replay"):
        PolicyConfig(route_margin=0.02)
    assert PolicyConfig(routes="filtered", route_margin=0.02).margin == 0.02
