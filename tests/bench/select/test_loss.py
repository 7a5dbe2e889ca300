"""Covers bench/select/loss.py and bench/select/base.py: what a tokenizer can fake, and what it cannot."""

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.bench.select.base import NotPossibleError, Prompt, Window
from ostinato.bench.select.loss import CodebaseLoss, windows
from ostinato.model.tokenizer import Tokenizer

FILES = {f"{name}.py": f"def {name}(value):\n    return value + {name}\n" * 20 for name in "abcdef"}
FINE = Tokenizer.train([""], 259)
"""Bytes alone."""
COARSE = Tokenizer.train(FILES.values(), 320)


class ByteModel:
    """A model that knows how frequent each byte is, whatever its tokenizer makes of them.

    The probability of a token is the product over its bytes, so that of a text does not depend on the
    tokenizer: two such models differ in what they know, and in nothing else.
    """

    read = sampled = 0

    def __init__(self, tokenizer: Tokenizer, known: Mapping[int, float], context: int = 64) -> None:
        self.name, self.tokenizer, self.context, self._known = "bytes", tokenizer, context, known

    async def complete(self, prompts: Sequence[Prompt]) -> list[str]:
        raise NotImplementedError

    async def logprobs(self, windows: Sequence[Window]) -> list[Sequence[float]]:
        return [[self._score(id_) for id_ in window.ids[window.first :]] for window in windows]

    def _score(self, id_: int) -> float:
        return sum(math.log(self._known[byte]) for byte in self.tokenizer.decode_bytes([id_]))


def knowing(share: float) -> dict[int, float]:
    """Return a mixture of how frequent bytes are in the files, and of knowing nothing."""
    text = "".join(FILES.values()).encode()
    return {byte: share * text.count(byte) / len(text) + (1 - share) / 256 for byte in range(256)}


async def figures(tokenizer: Tokenizer, known: Mapping[int, float]) -> tuple[float, float, float]:
    """Return bits a byte and summed bits, less what the very first token costs, and bits a token."""
    loss = CodebaseLoss(files=FILES, window=16)
    first = tokenizer.encode(FILES["a.py"])[0]
    bits = await loss.values(ByteModel(tokenizer, known))
    summed = sum(bits) - math.log2(tokenizer.id_count)
    left = sum(loss.weights) - len(tokenizer.decode_bytes([first]))
    tokens = sum(len(tokenizer.encode(text)) for text in FILES.values()) - 1
    return summed / left, summed, summed / tokens


async def test_a_tokenizer_fakes_the_loss_of_a_token_and_not_that_of_a_text() -> None:
    """Finer tokens make a bad model look better than a good one, coarser ones a good model worse."""
    good, bad = knowing(0.9), knowing(0.4)
    by = {
        (which, grain): await figures(tokenizer, known)
        for which, known in (("good", good), ("bad", bad))
        for grain, tokenizer in (("fine", FINE), ("coarse", COARSE))
    }
    for mine in ("fine", "coarse"):
        for theirs in ("fine", "coarse"):
            assert by["good", mine][0] < by["bad", theirs][0]
            assert by["good", mine][1] < by["bad", theirs][1]
    for which in ("good", "bad"):
        assert by[which, "fine"][0] == pytest.approx(by[which, "coarse"][0], abs=0.02)
    assert by["bad", "fine"][2] < by["good", "coarse"][2], "a token's loss would choose the bad model"


async def test_each_file_has_its_own_bits_and_their_order_is_that_of_the_paths() -> None:
    loss = CodebaseLoss(files=dict(reversed(FILES.items())), window=16)
    bits = await loss.values(ByteModel(FINE, knowing(0.0)))
    assert loss.clusters == tuple(sorted(FILES))
    assert bits[1:] == pytest.approx([8 * weight for weight in loss.weights[1:]])
    assert loss.hash == CodebaseLoss(files=FILES, window=16).hash != CodebaseLoss(files=FILES, window=8).hash


async def test_a_tokenizer_that_loses_text_is_named() -> None:
    class Lossy(ByteModel):
        async def logprobs(self, windows: Sequence[Window]) -> list[Sequence[float]]:
            return [[math.nan] * (len(window.ids) - window.first) for window in windows]

    with pytest.raises(NotPossibleError, match="no finite number"):
        await CodebaseLoss(files=FILES, window=16).values(Lossy(FINE, knowing(0.5)))


@given(st.integers(1, 80), st.integers(2, 30))
def test_every_token_but_the_first_is_scored_once_behind_half_a_window(count: int, width: int) -> None:
    scored = []
    for window in windows(range(count), width):
        assert len(window.ids) <= width
        assert window.first >= min(window.ids[window.first], width - max(1, width // 2))
        scored += window.ids[window.first :]
    assert scored == list(range(1, count))
