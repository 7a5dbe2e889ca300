"""Routes reach the forward pass of the tokens that they belong to, padded or packed.

Covers train/batch.py and train/packing.py, where routes pass through.
"""

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.replay import ReplayCounts, RoutesError
from ostinato.train.base import OTHER_ROUTES
from ostinato.train.batch import ScoredRow, check_routes, counted_scores, padded_replay, with_routes
from ostinato.train.config import PolicyConfig
from ostinato.train.local import WORTH, DecoderModel
from ostinato.train.packing import common_prefix, packed_replay, packs
from ostinato.train.policy import advantage_step, policy_step, scored
from ostinato.types import Group, Routes, Sample

EXPERTS, CHOSEN, LAYERS, VOCABULARY = 5, 2, 2, 40


def routed() -> Decoder:
    torch.manual_seed(1)
    shape = {"hidden_size": 16, "layers": LAYERS, "heads": 2, "kv_heads": 2, "head_dim": 8, "expert_size": 12}
    decoder = Decoder(ModelConfig(vocab_size=VOCABULARY, experts=EXPERTS, experts_per_token=CHOSEN, **shape))
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return decoder


def routes_of(tokens: int, rng: random.Random) -> Routes | None:
    chosen = [rng.sample(range(EXPERTS), CHOSEN) for _ in range(tokens * LAYERS)]
    data = b"".join(expert.to_bytes(2, "little") for pair in chosen for expert in pair)
    return Routes(data=data, width=LAYERS * CHOSEN) if data else None


def joined(one: Routes | None, other: Routes | None) -> Routes | None:
    data = (one.data if one else b"") + (other.data if other else b"")
    return Routes(data=data, width=LAYERS * CHOSEN) if data else None


def rows(count: int, prompt: int, seed: int, *, margin: float = math.inf) -> list[ScoredRow]:
    """Rows after one prompt with one set of routes, some of which end before the row does."""
    rng = random.Random(seed)
    shared = routes_of(prompt, rng)
    made = []
    for _ in range(count):
        length = rng.randint(2, 12)
        ids = (7,) * prompt + tuple(rng.randrange(VOCABULARY) for _ in range(length))
        counted = (False,) * prompt + tuple(rng.random() < 0.5 for _ in range(length - 1)) + (True,)
        routes = joined(shared, routes_of(rng.randint(0, length - 1), rng)) if rng.random() < 0.8 else None
        made.append(ScoredRow(ids=ids, counted=counted, routes=routes, margin=margin if routes else math.inf))
    return made


def alone(decoder: Decoder, row: ScoredRow) -> torch.Tensor:
    return counted_scores(decoder, [row], padded_replay([row], decoder.router)).logprobs_N


@given(
    st.tuples(st.integers(2, 6), st.sampled_from((5, WORTH - 1, WORTH + 9)), st.integers(0, 999)),
    st.integers(1, 500),
    st.sampled_from((math.inf, 0.3)),
)
def test_each_row_is_scored_with_its_own_routes(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[int, int, int], tokens: int, margin: float
) -> None:
    model = DecoderModel(routed(), tmp_path_factory.mktemp("run"), piece_tokens=tokens)
    batch, plain = rows(*made, margin=margin), routed()
    expected = [alone(plain, row) for row in batch]
    for scores, single in zip(model.logprobs(batch), expected, strict=True):
        torch.testing.assert_close(scores, single.detach(), atol=1e-5, rtol=1e-5)
    model.accumulate(batch, lambda _, scores: scores.logprobs_N.sum())
    torch.cat(expected).sum().backward()  # type: ignore[no-untyped-call]
    for ours, theirs in zip(model.decoder.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-4, rtol=1e-4)


def test_a_prompt_whose_tokens_went_to_other_experts_is_shared_up_to_them() -> None:
    rng = random.Random(0)
    ids, counted = (1, 2, 3, 4, 5, 6), (False,) * 5 + (True,)
    first = routes_of(5, rng)
    assert first is not None
    data = bytearray(first.data)
    data[3 * 8] = (data[3 * 8] + 1) % EXPERTS
    row = ScoredRow(ids=ids, counted=counted, routes=first)
    cases = [
        (replace(row), 5),
        (replace(row, routes=Routes(data=bytes(data), width=4)), 3),
        (replace(row, routes=Routes(data=first.data[: 2 * 8], width=4)), 2),
        (replace(row, routes=None), 0),
    ]
    for other, prefix in cases:
        assert common_prefix(row, other) == common_prefix(other, row) == prefix
        (part,) = packs([row, other], 100)
        assert part.prefix == prefix and part.routes_TW is not None
        assert len(part.routes_TW) == len(part.ids_T) == 10 - prefix


def test_rows_with_the_same_routes_lie_side_by_side() -> None:
    rng = random.Random(1)
    versions = [routes_of(5, rng) for _ in range(2)]
    given_rows = [
        ScoredRow(ids=(1, 2, 3, 4, 5, 9 - i), counted=(False,) * 5 + (True,), routes=versions[i % 2])
        for i in range(6)
    ]
    assert [sorted(part.rows) for part in packs(given_rows, 7)] in (
        [[0, 2, 4], [1, 3, 5]],
        [[1, 3, 5], [0, 2, 4]],
    )


def test_without_routes_nothing_is_replayed() -> None:
    plain = [ScoredRow(ids=(1, 2), counted=(False, True))]
    (part,) = packs(plain, 10)
    assert padded_replay(plain, routed().router) is None
    assert part.routes_TW is None and packed_replay(part, routed().router) is None


def sample(seed: int = 0, length: int = 10) -> Sample:
    rng = random.Random(seed)
    mask = (False,) * 4 + (True,) * (length - 4)
    return Sample(
        session_id=f"s{seed}",
        turns=(0,),
        ids=tuple(rng.randrange(VOCABULARY) for _ in range(length)),
        mask=mask,
        logprobs=tuple(-1.0 if sampled else 0.0 for sampled in mask),
        versions=(0,) * length,
        temperatures=(1.0,) * length,
        advantage=(-1.0) ** seed,
        routes=routes_of(length - 1, rng),
    )


def test_a_step_tells_what_became_of_the_routes(tmp_path: Path) -> None:
    samples = [sample(0), replace(sample(1), routes=None)]
    steps = {}
    configs = {
        "replay": PolicyConfig(routes="replay"),
        "filtered": PolicyConfig(routes="filtered", route_margin=0.5),
        "own": PolicyConfig(routes="own"),
    }
    for routes, config in configs.items():
        model = DecoderModel(routed(), tmp_path / routes)
        steps[routes] = advantage_step(model, samples, 2, 1e-3, config, version=0)
        assert model.replayed() == ReplayCounts()
    assert steps["replay"].routes_recorded == steps["filtered"].routes_recorded == 0.5
    assert steps["replay"].routes_replaced == 0 < steps["filtered"].routes_replaced
    assert steps["filtered"].routes_replaced < steps["filtered"].routes_differing
    assert steps["replay"].routes_differing > 0.2
    own = steps["own"]
    assert (own.routes_recorded, own.routes_differing, own.routes_replaced) == (0, 0, 0)
    assert len({steps[routes].loss for routes in steps}) == 3


def test_routes_that_do_not_fit_the_model_stop_the_step_and_change_nothing(tmp_path: Path) -> None:
    model = DecoderModel(routed(), tmp_path)
    before = [parameter.clone() for parameter in model.decoder.parameters()]
    good = sample(0)
    assert good.routes is not None and model.router is not None
    wrong = replace(good, routes=Routes(data=good.routes.data[:-2] + b"\x63\x00", width=4))
    with pytest.raises(RoutesError, match="session s0: the routes of token 8 in layer 1 have a number"):
        check_routes(wrong, model.router, PolicyConfig())
    other = replace(good, routes=Routes(data=bytes(8), width=2))
    with pytest.raises(RoutesError, match="session s0: its routes have 2 experts a token"):
        check_routes(other, model.router, PolicyConfig())
    group = Group(id="g", prompt="g", samples=(sample(1), wrong), rewards=(1.0, 0.0))
    assert policy_step(model, [group], 1e-3, PolicyConfig(), version=0).dropped == {"g": OTHER_ROUTES}
    with pytest.raises(RoutesError, match=r"set policy\.routes to own"):
        with_routes(scored(good), good, None, PolicyConfig())
    assert with_routes(scored(good), good, None, PolicyConfig(routes="own")).routes is None
    for ours, kept in zip(model.decoder.parameters(), before, strict=True):
        assert torch.equal(ours, kept)


def test_a_group_with_routes_of_another_model_is_dropped_and_the_rest_is_trained_as_if_alone(
    tmp_path: Path,
) -> None:
    good = [replace(sample(i), session_id=f"good{i}") for i in range(2)]
    other = replace(sample(2), session_id="other", routes=Routes(data=bytes(8), width=2))
    groups = [Group(id="good", prompt="good", samples=tuple(good), rewards=(1.0, 0.0))]
    wrong = Group(
        id="wrong", prompt="wrong", samples=(replace(other, advantage=0.0), other), rewards=(1.0, 0.0)
    )
    models = [DecoderModel(routed(), tmp_path / name) for name in ("both", "alone")]
    both = policy_step(models[0], [wrong, *groups], 1e-3, PolicyConfig(), version=0)
    assert both.dropped == {"wrong": OTHER_ROUTES}
    assert replace(both, dropped={}) == policy_step(models[1], groups, 1e-3, PolicyConfig(), version=0)
    for ours, theirs in zip(models[0].decoder.parameters(), models[1].decoder.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    free = policy_step(models[0], [wrong], 1e-3, PolicyConfig(routes="own"), version=1)
    assert free.dropped == {} and free.rows == 1
