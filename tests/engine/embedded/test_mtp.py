"""Drafts of an MTP layer: the kernel's are torch's, change nothing, and come and go with the weights.

Covers engine/embedded/mtp.h.
"""

import asyncio
from typing import Any

import pytest
import torch
from fuzz.law import Step, always_drafting, drawn, exact, law, noisy_draft, p_value
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.embedded.test_drafts import LAWS, TINY, repetitive, sampled
from tests.engine.toolbox import NEEDS_KERNEL, decoder, request

from ostinato.engine.base import LoadRefusedError
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.embedded.native import NativeForward
from ostinato.model.decoder import Decoder
from ostinato.model.mtp import Mtp
from ostinato.types import GenerateRequest, Sampling

pytestmark = NEEDS_KERNEL
SHAPES: list[dict[str, Any]] = [
    {"experts": 4},
    {"experts": 4, "shared_expert_size": 16},
    {"qk_norm": False, "tied": False},
    {"qk_norm": False, "attention_bias": True, "heads": 2, "kv_heads": 2},
]


def engine(model: Decoder, mtp: Mtp | None, drafts: int = 3, slots: int = 4) -> EmbeddedEngine:
    return EmbeddedEngine(
        model, version=1, slots=slots, max_len=128, drafts=drafts, draft=mtp, forward=NativeForward
    )


@torch.no_grad()
def foretold(model: Decoder, mtp: Mtp, ids: tuple[int, ...], count: int) -> list[int]:
    """Return the likeliest tokens after `ids`, each from the layer's own state after the one before."""
    known = torch.tensor(ids)
    states, positions = model.norm(model.hidden(known[None, :-1])[0])[0], torch.arange(len(ids) - 1)
    found = list[int]()
    for _ in range(count):
        out = mtp(model, states[None], known[None, 1:], positions[None])[0]
        found.append(int(mtp.head(model, out[-1]).argmax()))
        # Keys of the text come from the model's states, those of drafted tokens from the layer's own.
        known = torch.cat((known, torch.tensor(found[-1:])))
        states, positions = torch.cat((states, out[-1:])), torch.arange(len(known) - 1)
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_drafts_what_torch_does(shape: dict[str, Any]) -> None:
    for seed in range(6):
        model = decoder(seed, **shape)
        mtp, prompt = noisy_draft(model, seed), request(seed, length=2 + 17 * seed).prompt_ids
        step = Step(model, prompt, Sampling(temperature=0.0), 4, mtp)
        accepted, row, expected = len(step(0)) - 1, step.row, foretold(model, mtp, prompt, 4)
        same = [one == other for one, other in zip(row, expected, strict=True)]
        assert same == [at != accepted for at in range(4)]


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), *LAWS], ids=str)
def test_the_law_of_a_step_with_an_mtp_layer_is_the_model_s(sampling: Sampling) -> None:
    """Every outcome of a step that verifies two drafted tokens, with its exact probability."""
    model, lengths = decoder(2, **TINY), set[int]()
    for seed in range(3 if sampling.temperature else 8):
        prompt, mtp = (0, 1, seed % 5, 3), noisy_draft(model, seed)
        found, expected = law(model, prompt, sampling, 2, mtp), exact(model, prompt, sampling, 3)
        lengths |= set(map(len, found))
        for said, probability in found.items():
            # A rejected draft ends the step: its outcome is the sum over all that could follow.
            follows = sum(p for path, p in expected.items() if path[: len(said)] == said)
            assert abs(follows - probability) < 1e-6
        assert abs(sum(found.values()) - 1) < 1e-9
    assert max(lengths) > 1


DRAWN = [Sampling(temperature=0.3, top_p=0.9), Sampling(), Sampling(top_p=0.8)]


@pytest.mark.parametrize("seeds", [3000, pytest.param(100_000, marks=pytest.mark.deep)])
@pytest.mark.parametrize("sampling", DRAWN, ids=str)
async def test_what_is_sampled_follows_the_model(sampling: Sampling, seeds: int) -> None:
    """Completions of several steps, 125 of them possible; the seeds are fixed."""
    model, prompt = decoder(2, **TINY), (0, 1, 2, 0, 1, 2, 0)
    counts, accepted = await drawn(model, prompt, sampling, 3, range(seeds), draft=noisy_draft(model))
    assert 0.01 < accepted < 0.99
    assert p_value(counts, exact(model, prompt, sampling, 3)) > 1e-3


MODEL = decoder(experts=4)
MTP = noisy_draft(MODEL, noise=0.05)


@given(repetitive(), st.integers(1, 5), st.integers(1, 4))
def test_a_request_gives_the_same_to_the_bit(asked: list[GenerateRequest], drafts: int, slots: int) -> None:
    """At temperature 0 and every other, with penalties, stops, shared prefixes and slots used again."""
    plain = asyncio.run(sampled(engine(MODEL, None, 0, slots), [*asked, *asked]))
    assert asyncio.run(sampled(engine(MODEL, MTP, drafts, slots), [*asked, *asked])) == plain


async def test_a_swap_takes_model_and_draft_together_or_goes_without_the_draft() -> None:
    asked = [request(i, length=20, max_tokens=60, temperature=0.7) for i in range(4)]
    with always_drafting():
        served, new = engine(MODEL, MTP), decoder(1, experts=4)
    await sampled(served, asked)
    assert served.stats()["drafted"] > 20
    together = new.state_dict() | noisy_draft(new, 7).state_dict()
    for version, tensors, drafts in ((2, new.state_dict(), False), (3, together, True)):
        await served.swap(version, tensors)
        weights: Any = served._forward._weights
        assert (weights.mtp is not None) == drafts
        plain = EmbeddedEngine(new, version=version, slots=4, max_len=128, forward=NativeForward)
        assert await sampled(served, asked) == await sampled(plain, asked)


async def test_a_draft_of_another_shape_is_refused_by_name() -> None:
    served, other = engine(MODEL, MTP), decoder(1, experts=4, heads=2)
    with pytest.raises(LoadRefusedError, match=r"model.layers.2.self_attn.*has shape.*expected"):
        await served.swap(2, MODEL.state_dict() | Mtp(other.config).state_dict())
    damaged = {name: tensor for name, tensor in MTP.state_dict().items() if "eh_proj" not in name}
    with pytest.raises(LoadRefusedError, match=r"missing .*eh_proj"):
        await served.swap(2, MODEL.state_dict() | damaged)
    assert served.version == 1
