"""Recorded experts take the place of the decoder's own choice, and nothing else changes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.replay import UNKNOWN, Replay, ReplayCounts, RouterShape, RoutesError, recorded, select
from ostinato.types import Routes

SHAPE = RouterShape(layers=2, experts=6, per_token=3)


@st.composite
def choices(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [N, E] without ties, and recorded experts [N, P], some of them unknown."""
    experts, tokens = draw(st.integers(2, 9)), draw(st.integers(1, 6))
    per_token = draw(st.integers(1, experts))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    logits = torch.stack([torch.randperm(experts, generator=random) * 0.25 - 1 for _ in range(tokens)])
    routes = torch.stack([torch.randperm(experts, generator=random) for _ in range(tokens)])
    known = torch.rand(tokens, 1, generator=random) < 0.8
    return logits, torch.where(known, routes[:, :per_token], UNKNOWN)


def check_choice(chosen: list[int], routes: list[int], own: list[int], margin: float) -> set[int]:
    """Check one token's experts; return the recorded ones among them."""
    assert len(set(chosen)) == len(chosen)
    if routes[0] == UNKNOWN:
        assert chosen == own
    elif margin == 0:
        assert set(chosen) == set(own)
    elif margin == math.inf:
        assert chosen == routes
    fills = [expert for expert in chosen if expert not in routes]
    assert fills == [expert for expert in own if expert not in routes][: len(fills)]
    return set(chosen) & set(routes)


@given(choices(), st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.1, math.inf]), min_size=2, max_size=2))
def test_the_kept_experts_grow_with_the_margin(
    made: tuple[torch.Tensor, torch.Tensor], margins: list[float]
) -> None:
    logits, routes = made
    own = logits.topk(routes.shape[1], -1).indices.tolist()
    rows, kept = routes.tolist(), list[list[set[int]]]()
    differing = sum(len(set(row) - set(best) - {UNKNOWN}) for row, best in zip(rows, own, strict=True))
    for margin in sorted(margins):
        chosen, counts = select(logits, logits.softmax(-1), routes, margin)
        tokens = zip(chosen.tolist(), rows, own, strict=True)
        kept.append([check_choice(*token, margin) for token in tokens])
        known = sum(len(row) for row in rows if row[0] != UNKNOWN)
        assert (counts.choices, counts.recorded, counts.differing) == (routes.numel(), known, differing)
        assert known - counts.replaced == sum(
            int(logits[i, e] >= logits[i].topk(routes.shape[1]).values[-1] - margin)
            for i, row in enumerate(rows)
            for e in row
            if e != UNKNOWN
        )
    assert all(few <= many for few, many in zip(*kept, strict=True))


def routed(shared: int = 0) -> Decoder:
    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "layers": 2, "heads": 2, "kv_heads": 2, "head_dim": 8, "expert_size": 12}
    config = ModelConfig(vocab_size=30, experts=6, experts_per_token=3, shared_expert_size=shared, **sizes)
    decoder = Decoder(config)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return decoder


def loss_of(decoder: Decoder, ids: torch.Tensor, replay: Replay | None) -> tuple[torch.Tensor, torch.Tensor]:
    hidden, routes = decoder.hidden(ids, replay=replay)
    assert routes is not None
    logits = decoder.head(hidden)
    loss = torch.log_softmax(logits[:, :-1], -1).gather(-1, ids[:, 1:, None]).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    return logits.detach(), routes


@pytest.mark.parametrize("shared", [0, 8])
def test_the_decoders_own_routes_change_nothing_to_the_bit(shared: int) -> None:
    ids = torch.randint(30, (3, 11), generator=torch.Generator().manual_seed(0))
    one, other = routed(shared), routed(shared)
    logits, routes = loss_of(one, ids, None)
    replay = Replay(routes.long().view(-1, 2, 3), math.inf)
    again, repeated = loss_of(other, ids, replay)
    assert torch.equal(logits, again) and torch.equal(routes, repeated)
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert mine.grad is not None and theirs.grad is not None
        assert torch.equal(mine.grad, theirs.grad)
    assert replay.counts == ReplayCounts(choices=198, recorded=198)


def test_other_experts_are_used_and_the_router_learns_from_them() -> None:
    ids = torch.randint(30, (1, 8), generator=torch.Generator().manual_seed(0))
    free, own = loss_of(routed(), ids, None)
    others = torch.stack([torch.randperm(6)[:3] for _ in range(16)]).view(8, 2, 3)
    decoder = routed()
    replayed, used = loss_of(decoder, ids, Replay(others, math.inf))
    assert torch.equal(used[0].long(), others) and not torch.equal(own, used)
    assert not torch.allclose(free, replayed)
    for layer in decoder.layers:
        router = layer.mlp.router.grad  # type: ignore[union-attr]
        assert (router.abs().sum(1) > 0).all()


def test_routes_are_used_once() -> None:
    ids, replay = torch.zeros(1, 4, dtype=torch.long), Replay(torch.full((4, 2, 3), UNKNOWN), math.inf)
    with torch.no_grad():
        routed().hidden(ids, replay=replay)
        with pytest.raises(RoutesError, match=r"used 1 times in a pass, got \{0: 2, 1: 2\}"):
            routed().hidden(ids, replay=replay)
        with pytest.raises(RoutesError, match="routes of 4 tokens for a pass of 3"):
            routed().hidden(ids[:, :3], replay=Replay(torch.full((4, 2, 3), UNKNOWN), math.inf))


def numbers(*rows: list[int]) -> bytes:
    return b"".join(number.to_bytes(2, "little") for row in rows for number in row)


@pytest.mark.parametrize(
    ("data", "width", "message"),
    [
        (
            numbers([0, 1, 2, 3]),
            4,
            "s1: its routes have 4 experts a token, and this model chooses 3 in each of 2",
        ),
        (
            numbers([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 6]),
            6,
            r"s1: the routes of token 1 in layer 1 have a number beyond its 6 experts: \[3, 4, 6\]",
        ),
        (numbers([0, 1, 2, 5, 4, 5]), 6, r"token 0 in layer 1 have an expert twice: \[5, 4, 5\]"),
    ],
)
def test_routes_of_another_model_are_refused(data: bytes, width: int, message: str) -> None:
    with pytest.raises(RoutesError, match=message):
        SHAPE.check(Routes(data=data, width=width), "s1")


def test_distinct_experts_of_the_model_are_accepted() -> None:
    SHAPE.check(Routes(data=numbers([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]), width=6), "s1")


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 5))
def test_tokens_without_routes_are_unknown(known: int, start: int, count: int) -> None:
    routes = Routes(data=numbers(*([i, i + 1] for i in range(known))), width=2) if known else None
    expected = [[i, i + 1] if i < known else [UNKNOWN] * 2 for i in range(start, start + count)]
    assert recorded(routes, start, start + count, 2).tolist() == expected
