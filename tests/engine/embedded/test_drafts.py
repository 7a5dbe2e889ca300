"""Drafts change no token, no log-probability, no version and no route: they only change when tokens come.

Covers engine/embedded/drafts.h.
"""

import asyncio
import ctypes
import random
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest
from fuzz.law import drawn, exact, law, p_value
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.embedded.test_sampling import SAMPLINGS
from tests.engine.toolbox import NEEDS_KERNEL, decoder, request

from ostinato.engine.base import Token
from ostinato.engine.embedded import kernel
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.embedded.native import NativeForward
from ostinato.model.decoder import Decoder
from ostinato.types import Completion, GenerateRequest, Sampling

pytestmark = NEEDS_KERNEL
MODEL = decoder(experts=4)


def engine(drafts: int, slots: int = 4, model: Decoder = MODEL) -> EmbeddedEngine:
    return EmbeddedEngine(model, version=1, slots=slots, max_len=128, drafts=drafts, forward=NativeForward)


async def sampled(served: EmbeddedEngine, asked: Sequence[GenerateRequest]) -> list[Completion]:
    return list(await asyncio.gather(*map(served.generate, asked)))


@st.composite
def repetitive(draw: st.DrawFn) -> list[GenerateRequest]:
    """Requests whose prompts repeat themselves, and whose completions stop anywhere."""
    asked = []
    for number in range(draw(st.integers(1, 6))):
        pattern = draw(st.lists(st.integers(0, 63), min_size=1, max_size=5))
        length = draw(st.integers(1, 100))
        sampling = draw(SAMPLINGS | st.just(Sampling(temperature=0.0)))
        stops = tuple(draw(st.sets(st.integers(0, 63), max_size=3)))
        more = {"max_tokens": draw(st.integers(1, 60)), "stop_ids": stops, "sampling": sampling}
        asked.append(request(number, prompt_ids=tuple((pattern * length)[:length]), **more))
    return asked


@given(repetitive(), st.integers(1, 9), st.integers(1, 4))
def test_a_request_gives_the_same_to_the_bit(asked: list[GenerateRequest], drafts: int, slots: int) -> None:
    plain = asyncio.run(sampled(engine(0, slots), asked))
    assert asyncio.run(sampled(engine(drafts, slots), asked)) == plain


async def test_drafts_are_accepted_and_save_steps() -> None:
    asked = [request(1, prompt_ids=(3, 1, 4, 1, 5) * 6, max_tokens=90, temperature=0.0)]
    plain, drafting = engine(0), engine(7)
    assert await sampled(drafting, asked) == await sampled(plain, asked)
    fewer, counts = drafting.stats()["steps"], drafting.stats()
    assert fewer < 60 < plain.stats()["steps"] == 90
    assert counts["tokens"] == 90 and fewer + counts["accepted"] == 90
    assert plain.stats()["drafted"] == 0


async def test_a_stream_has_every_token_of_a_step_in_order() -> None:
    asked = request(1, prompt_ids=(3, 1, 4, 1, 5) * 6, max_tokens=80, temperature=0.0)
    served = engine(7)
    events = [event async for event in served.stream(asked)]
    whole, tokens = events[-1], events[:-1]
    assert isinstance(whole, Completion) and served.stats()["accepted"] > 20
    assert [(each.id, each.logprob, each.version) for each in tokens if isinstance(each, Token)] == list(
        zip(whole.ids, whole.logprobs, whole.versions, strict=True)
    )


async def test_a_swap_between_two_steps_gives_what_it_gives_without_drafts() -> None:
    """A token's version is the one whose distribution it was drawn from, in the middle of a draft too."""
    asked = request(1, prompt_ids=(3, 1, 4, 1, 5) * 6, max_tokens=90, temperature=0.02)
    new = decoder(1, experts=4).state_dict()

    async def swapped(drafts: int, after: int) -> Completion:
        """Swap between two steps, when there are so many tokens."""
        served = engine(drafts)
        job = served._enqueue(asked, stream=False)
        while served.stats()["tokens"] < after:
            served._step()
        served._forward.use(served._forward.prepare(new))
        served._version, served._epoch = 2, 1
        return await job.done

    for after in (20, 50):
        drafted = await swapped(7, after)
        old = drafted.versions.count(1)
        assert after <= old < 90 and drafted.versions == (1,) * old + (2,) * (90 - old)
        assert await swapped(0, old) == drafted


async def test_a_long_mixed_life_is_the_same_with_drafts() -> None:
    """Sessions that grow and share prefixes on few slots: rows of rejected drafts are never reused."""
    for drafts in (0, 5):
        rng, served, said = random.Random(0), engine(drafts, slots=3), []
        history = [request(i, length=10).prompt_ids * 3 for i in range(3)]
        for turn in range(40):
            ids = rng.choice(history)[:100]
            asked = request(turn, prompt_ids=ids, temperature=rng.choice([0.0, 0.1, 1.0]))
            got = await served.generate(asked)
            history.append((*ids, *got.ids, turn))
            said.append(got)
        if not drafts:
            expected = said
    assert said == expected and served.stats()["drafted"] > 50 < served.stats()["reused_tokens"]


TINY = {"vocab_size": 5, "layers": 1, "hidden_size": 16, "heads": 2, "kv_heads": 1, "intermediate_size": 16}
LAWS = [
    Sampling(),
    Sampling(temperature=0.3),
    Sampling(temperature=1.7, top_p=0.7),
    Sampling(top_k=2),
    Sampling(min_p=0.3, temperature=0.6),
    Sampling(presence_penalty=0.9, frequency_penalty=-0.4, repetition_penalty=1.4),
    Sampling(temperature=0.5, top_p=0.8, top_k=3, frequency_penalty=0.6),
]


@pytest.mark.parametrize("sampling", LAWS, ids=str)
def test_the_law_of_a_drafted_step_is_the_model_s(sampling: Sampling) -> None:
    """Every outcome of a step that verifies two drafted tokens, with its exact probability."""
    model, lengths = decoder(2, **TINY), set[int]()
    for drafted in ((0, 1), (1, 2), (2, 0), (3, 3)):
        prompt = (0, *drafted, 0, *drafted, 0)
        found, expected = law(model, prompt, sampling, drafts=2), exact(model, prompt, sampling, 3)
        lengths |= set(map(len, found))
        for said, probability in found.items():
            # A rejected draft ends the step: its outcome is the sum over all that could follow.
            follows = sum(p for path, p in expected.items() if path[: len(said)] == said)
            assert abs(follows - probability) < 1e-6
        assert abs(sum(found.values()) - 1) < 1e-9
    assert lengths == {1, 2, 3}


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.3), Sampling(), Sampling(top_p=0.8)], ids=str)
async def test_what_is_sampled_follows_the_model(sampling: Sampling) -> None:
    """Completions of several steps, 125 of them possible; the seeds are fixed."""
    model, prompt = decoder(2, **TINY), (0, 1, 2, 0, 1, 2, 0)
    counts, accepted = await drawn(model, prompt, sampling, tokens=3, seeds=range(5000))
    assert 0.01 < accepted < 0.99
    assert p_value(counts, exact(model, prompt, sampling, 3)) > 1e-3


POLICY = """
#include "kernel.c"
int64_t chosen(int64_t rows, const double *cost, int64_t n, const double *survives, int64_t slots,
               double share, double owed) {
    int way = share > 0 ? LAYER : TEXT;
    Drafts *d = create_drafts(slots, n);
    Candidate candidates[n];
    for (int64_t i = 0; i < n; i++) candidates[i] = (Candidate){survives[i], 0};
    for (int64_t i = 0; i < rows; i++) d->cost[i > slots ? way * d->rows + i : i] = cost[i];
    double speed;
    d->share = share;
    int64_t k = worthwhile(d, way, candidates, n, slots, owed, &speed);
    discard_drafts(d);
    return k;
}
int64_t run_of(const int32_t *row, int64_t length, int64_t *next) { return longest_run(row, length, next); }
"""


@cache
def policy() -> ctypes.CDLL:
    """Return the functions that choose, which the library keeps to itself."""
    folder = Path(tempfile.mkdtemp())
    (folder / "policy.c").write_text(POLICY)
    options = [*kernel.OPTIONS, "-I", str(kernel.SOURCES[0].parent), "-o", str(folder / "policy.so")]
    subprocess.run(["cc", *options, str(folder / "policy.c"), "-lm"], check=True)
    return ctypes.CDLL(str(folder / "policy.so"))


def chosen(
    cost: list[float], survives: list[float], slots: int = 1, share: float = 0.0, owed: float = 0.0
) -> int:
    """Return how many of the drafted tokens are verified where a step with i rows takes cost[i].

    With a share, an MTP layer drafts them, each for that part of a plain step.
    """
    doubles = (ctypes.c_double * len(cost))(*cost), (ctypes.c_double * len(survives))(*survives)
    more = ctypes.c_double(share), ctypes.c_double(owed)
    return int(policy().chosen(len(cost), doubles[0], len(survives), doubles[1], slots, *more))


def test_as_many_are_verified_as_pay() -> None:
    sure, even = [0.9, 0.81, 0.73], [0.5, 0.25, 0.12]
    assert chosen([0, 1, 1.1, 1.2, 1.3], sure) == 3  # the weights are read once for all rows
    assert chosen([0, 1, 1.1, 1.2, 1.3], even) == 2
    assert chosen([0, 1, 2, 3, 4], sure) == 0  # each row costs what a step costs
    assert chosen([0, 1, 1.9, 1.9, 1.3], sure) == 3  # four rows are one pass over the weights
    assert chosen([0, 1, 1.95, 1.97, 1.98], even) == 0
    assert chosen([0, 0, 0, 0, 0], sure) == 0  # the time of a plain step comes first
    assert chosen([0, 1, 0, 0, 0], sure) == 3  # an unknown time is found out
    assert chosen([0] * 32 + [1], sure, slots=32) == 0  # but not where every row was computed for already


def test_what_a_layer_drafts_costs_its_own_passes_and_the_keys_it_misses() -> None:
    sure = [0.9, 0.81, 0.73]
    assert chosen([0, 1, 0, 0, 0], sure, share=0.1) == 3
    assert chosen([0, 1, 0, 0, 0], sure, share=0.95) == 0  # an unknown time is not found out at any price
    assert chosen([0, 1, 1.1, 1.2, 1.3], sure, share=0.95) == 3  # a known time has all in it
    assert chosen([0, 1, 1.1, 1.2, 1.3], sure, share=0.1, owed=2.5) == 0
    assert chosen([0, 2, 0, 0, 0, 0], sure, slots=1, share=0.6) == chosen([0, 1, 0, 0, 0], sure, share=0.6)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60))
def test_the_longest_run_is_found_where_it_stood_last(row: list[int]) -> None:
    next_ = ctypes.c_int64(0)
    found = policy().run_of((ctypes.c_int32 * len(row))(*row), ctypes.c_int64(len(row)), ctypes.byref(next_))

    def run(at: int) -> int:
        """Return how many tokens before position `at` are those at the end of the row, 32 at most."""
        same = (row[at - 1 - i] == row[-1 - i] for i in range(min(at, 32)))
        return sum(1 for _ in takewhile(bool, same))

    assert found == max(map(run, range(1, len(row))), default=0)
    assert not found or next_.value == max(at for at in range(1, len(row)) if run(at) == found)
