"""The loss of a codebase: summed negative log-likelihood, and bits a byte.

::

    files in order of their paths ─► token ids of all, one after another ─► windows ─► nats of each file

Each token is scored once, behind at least half a window of what stands before it; only the first has nothing
before it, and costs the logarithm of the vocabulary. Nothing is divided by a number of tokens: a tokenizer
that splits a text into more tokens, some of which follow from the others, lowers the loss of a token and not
that of the text, and one that joins them raises it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ostinato.bench.select.base import Candidate, NotPossibleError, Window, hash_of

NATS_PER_BIT = math.log(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodebaseLoss:
    """The loss of `files`, by path, whose texts are not empty.

    >>> CodebaseLoss(files={"b.py": "x", "a.py": "größe"}, window=64).weights
    (7.0, 1.0)
    """

    files: Mapping[str, str]
    window: int
    """Tokens of a window; a model of a shorter context has windows of that."""
    name: str = "loss"
    unit: str = "bits a byte"
    more_is_better: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        """The paths in the order in which the files are read: that of their bytes."""
        return sorted(self.files, key=str.encode)

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(float(len(self.files[path].encode())) for path in self.paths)

    @property
    def clusters(self) -> tuple[str, ...]:
        return tuple(self.paths)

    @property
    def hash(self) -> str:
        return hash_of([self.name, 1, self.window, [[path, self.files[path]] for path in self.paths]])

    async def values(self, candidate: Candidate) -> tuple[float, ...]:
        """Return the bits of each file."""
        ids: list[int] = []
        ends: list[int] = []
        for path in self.paths:
            text = self.files[path]
            own = candidate.tokenizer.encode_untrusted(text)
            if candidate.tokenizer.decode_bytes(own) != text.encode():
                raise NotPossibleError(
                    f"{candidate.name}: its tokenizer does not give {path} back byte for byte, so a loss of "
                    "its tokens would not be that of the file"
                )
            ids += own
            ends.append(len(ids))
        width = min(self.window, candidate.context)
        scores = await candidate.logprobs(windows(ids, width))
        nats = [math.log(candidate.tokenizer.id_count), *(-score for some in scores for score in some)]
        if len(nats) != len(ids) or not all(map(math.isfinite, nats)):
            raise NotPossibleError(
                f"{candidate.name}: {len(nats)} scores of {len(ids)} tokens, or one that is no finite number"
            )
        starts = [0, *ends[:-1]]
        return tuple(math.fsum(nats[a:b]) / NATS_PER_BIT for a, b in zip(starts, ends, strict=True))


def windows(ids: Sequence[int], width: int) -> list[Window]:
    """Return windows of at most `width` tokens that score every token but the first exactly once.

    >>> [(window.ids, window.first) for window in windows(range(6), 4)]
    [((0, 1, 2, 3), 1), ((2, 3, 4, 5), 2)]
    """
    found, scored, step = list[Window](), 1, max(1, width // 2)
    while scored < len(ids):
        end = min(len(ids), scored + step if found else width)
        start = max(0, end - width)
        found.append(Window(ids=tuple(ids[start:end]), first=scored - start))
        scored = end
    return found
