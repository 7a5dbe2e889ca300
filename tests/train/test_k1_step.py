"""k1 end to end: a huge weight holds the policy at the reference, none lets it move, a kill changes nothing.

Covers the part of train/policy.py, train/local.py and train/learner.py that knows a reference.
"""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.train.test_learner import Bench, bench, checkpoint, command, never, whole  # noqa: F401
from tests.train.test_replay import routed, sample

from ostinato.model.decoder import Decoder
from ostinato.sync import SyncError
from ostinato.train.base import StateError
from ostinato.train.config import LearnerConfig, PolicyConfig
from ostinato.train.learner import main
from ostinato.train.local import DecoderModel
from ostinato.train.policy import policy_step, scored, session_k1
from ostinato.types import Group, Sample

PROMPT, SAMPLED, STEPS, SIZE = (1, 2), 3, 25, 8


@torch.no_grad()
def sampled(decoder: Decoder, generator: torch.Generator, version: int) -> list[Group]:
    """Four groups of sessions of three tokens, drawn from the policy itself; low tokens are rewarded."""
    ids = torch.tensor([PROMPT] * 4 * SIZE)
    logprobs = torch.zeros(len(ids), len(PROMPT))
    for _ in range(SAMPLED):
        logits, _ = decoder(ids)
        table = torch.log_softmax(logits[:, -1], -1)
        drawn = torch.multinomial(table.exp(), 1, generator=generator)
        ids, logprobs = torch.cat([ids, drawn], 1), torch.cat([logprobs, table.gather(1, drawn)], 1)
    rewards = (ids[:, len(PROMPT) :] < 5).float().mean(1)
    return [group(i, ids, logprobs, rewards, version) for i in range(4)]


def group(
    number: int, ids: torch.Tensor, logprobs: torch.Tensor, rewards: torch.Tensor, version: int
) -> Group:
    own = slice(SIZE * number, SIZE * (number + 1))
    values = rewards[own].tolist()
    mask = (False,) * len(PROMPT) + (True,) * SAMPLED
    samples = tuple(
        Sample(
            session_id=f"{number}/{i}",
            turns=(0,),
            ids=tuple(ids[own][i].tolist()),
            mask=mask,
            logprobs=tuple(logprobs[own][i].tolist()),
            versions=tuple(version * each for each in mask),
            temperatures=(1.0,) * len(mask),
            advantage=value - (sum(values) - value) / (SIZE - 1),
        )
        for i, value in enumerate(values)
    )
    return Group(id=str(number), prompt=str(number), samples=samples, rewards=tuple(values))


@torch.no_grad()
def divergence(decoder: Decoder, reference: Decoder) -> float:
    """KL(pi | reference) of the first sampled token, exact."""
    ours, theirs = (
        torch.log_softmax(each(torch.tensor([PROMPT]))[0][0, -1], -1) for each in (decoder, reference)
    )
    return float((ours.exp() * (ours - theirs)).sum())


def practised(decoder: Decoder, run_dir: Path, k1: float) -> tuple[float, list[float | None]]:
    """The divergence after some steps of practice, and the k1 that each step reported."""
    policy, reference = copy.deepcopy(decoder), decoder
    model, generator = DecoderModel(policy, run_dir), torch.Generator().manual_seed(0)
    config = PolicyConfig(k1=k1, tokens_per_session=SAMPLED)
    if k1:
        model.refer({name: tensor.clone() for name, tensor in reference.state_dict().items()})
    reported = []
    for version in range(STEPS):
        groups = sampled(policy, generator, version)
        reported.append(policy_step(model, groups, 2e-3, config, version=version).k1)
    return divergence(policy, reference), reported


def test_a_huge_weight_holds_the_policy_at_the_reference_and_none_lets_it_move(
    decoder: Decoder, tmp_path: Path
) -> None:
    moved, nothing = practised(decoder, tmp_path / "none", 0.0)
    held, reported = practised(decoder, tmp_path / "huge", 1000.0)
    assert moved > 0.05 and held < moved / 10
    assert nothing == [None] * STEPS
    assert reported[0] == pytest.approx(0.0, abs=1e-6) and all(each is not None for each in reported)


def test_k1_compares_both_under_the_routes_that_the_step_replays(tmp_path: Path) -> None:
    """A reference whose router alone differs, by less than rounding in bfloat16, has nearly no k1 then."""
    model = DecoderModel(routed(), tmp_path)
    groups = [Group(id=f"g{i}", prompt=f"g{i}", samples=(sample(i, 40),), rewards=(1.0,)) for i in range(40)]
    weights = {name: tensor.clone() for name, tensor in model.decoder.state_dict().items()}
    model.refer(weights)
    configs = [PolicyConfig(k1=0.1, routes=routes) for routes in ("replay", "own")]
    assert [set(session_k1(model, groups, each).values()) for each in configs] == [{0.0}, {0.0}]
    random = torch.Generator().manual_seed(0)
    routers = [name for name in weights if name.endswith("mlp.gate.weight")]
    for name in routers:
        weights[name] += 1e-3 * torch.randn(weights[name].shape, generator=random)
    model.refer(weights)
    replayed, own = (session_k1(model, groups, each) for each in configs)
    assert len(routers) == 2 and max(map(abs, replayed.values())) < 0.1 * max(map(abs, own.values()))
    rows = [replace(scored(each), routes=each.routes) for group in groups for each in group.samples]
    ours, theirs = model.logprobs(rows), model.reference_logprobs(rows)
    by_hand = [float((a - b).sum()) for a, b in zip(ours, theirs, strict=True)]
    assert list(replayed.values()) == pytest.approx(by_hand, abs=1e-5)


def test_without_a_weight_nothing_is_loaded(bench: Bench) -> None:  # noqa: F811
    bench.offer(0.5, -0.5)
    bench.learner(LearnerConfig(groups=1)).run(1, never)
    assert bench.trainer.model._reference is None and bench.lines()[-1]["k1"] is None


def with_k1(**policy: object) -> LearnerConfig:
    return LearnerConfig(groups=2, policy=PolicyConfig(k1=0.1, **policy))  # type: ignore[arg-type]


def test_a_killed_run_keeps_its_reference_and_ends_at_the_same_bits(bench: Bench, whole: Bench) -> None:  # noqa: F811
    for each in (bench, whole):
        for _ in range(6):
            each.offer(0.5, -0.5)
    whole.learner(with_k1()).run(3, never)
    for until in (2, 3):  # the second learner is a new process: it has nothing but the state
        bench.learner(with_k1()).run(until, never)
    ours, theirs = bench.weights(3), whole.weights(3)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    k1s = [line["k1"] for line in bench.lines()[1:]]
    assert k1s == [line["k1"] for line in whole.lines()[1:]]
    assert k1s[0] == pytest.approx(0.0, abs=1e-5) and abs(k1s[2]) > 1e-6


def test_another_version_can_be_the_reference(bench: Bench) -> None:  # noqa: F811
    for _ in range(4):
        bench.offer(0.5, -0.5)
    bench.learner(LearnerConfig(groups=2)).run(1, never)
    bench.learner(with_k1(k1_reference=1)).run(2, never)
    assert bench.lines()[-1]["k1"] == pytest.approx(0.0, abs=1e-5)


def test_a_reference_that_was_never_published_is_refused_before_a_claim(
    bench: Bench,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench.offer(0.5, -0.5)
    with pytest.raises(SyncError, match="7"):
        bench.learner(with_k1(k1_reference=7))
    assert bench.ledger.ready(0) == 1
    assert main([*command(bench, 1)[3:], "--k1", "0.1", "--k1-reference", "7"]) == 1
    assert "7" in caplog.text and bench.ledger.ready(0) == 1


def test_a_reference_of_another_shape_is_refused(decoder: Decoder, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="do not fit the model"):
        DecoderModel(decoder, tmp_path).refer({"lm_head.weight": torch.zeros(1)})
