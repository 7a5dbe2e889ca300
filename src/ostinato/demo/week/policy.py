"""The surrogate policy: what each published version does when it sees a view.

The chances are computed from the published weights, as the trainer computes them, so that what is recorded
beside a token is what the trainer finds again.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ostinato.demo.week.words import Act, Words
from ostinato.types import Completion, FinishReason

if TYPE_CHECKING:
    from ostinato.store import Objects

EPS = 1e-6
"""That of the decoder's normalisation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActPolicy:
    """The policy of one version: by the token of a view, the cumulated chances of all tokens."""

    version: int
    cumulated: Mapping[int, list[float]]

    def sample(self, view: int, rng: Random) -> Completion:
        """Return one sampled token with its log-probability."""
        row = self.cumulated[view]
        token = min(bisect_right(row, rng.random() * row[-1]), len(row) - 1)
        chance = row[token] - (row[token - 1] if token else 0.0)
        return Completion(
            ids=(token,),
            logprobs=(math.log(chance / row[-1]),),
            versions=(self.version,),
            finish=FinishReason.STOP,
        )


class Policies:
    """The policies of all published versions of a chain, read once each."""

    def __init__(self, objects: "Objects", words: Words) -> None:
        self._objects = objects
        self.words = words
        self.of = cache(self._of)

    def _of(self, version: int) -> ActPolicy:
        from ostinato.sync import Subscriber

        tensors = Subscriber(self._objects).fetch(version)
        arrays = {name: np.asarray(tensor, dtype=np.float64) for name, tensor in tensors.items()}
        return policy_of(version, arrays, self.words)


def policy_of(version: int, weights: Mapping[str, NDArray[np.float64]], words: Words) -> ActPolicy:
    """Return the policy of the weights of a decoder without a layer."""
    views = list(words.views.values())
    hidden = weights["model.embed_tokens.weight"][views]
    hidden = hidden / np.sqrt(np.square(hidden).mean(axis=1, keepdims=True) + EPS)
    logits = (hidden * weights["model.norm.weight"]) @ weights["lm_head.weight"].T
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return ActPolicy(
        version=version,
        cumulated={view: list(accumulate(row.tolist())) for view, row in zip(views, chances, strict=True)},
    )


def act_of(words: Words, completion: Completion) -> Act:
    """Return the act that was sampled; a token that is none is a call that cannot be read."""
    return words.acts.get(completion.ids[0], Act.BREAK)
