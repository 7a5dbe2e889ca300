"""The distribution that a `Sampling` asks for, from its definition, slowly and in double precision."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ostinato.types import Sampling

Array = NDArray[np.float64]


def distribution(logits: Array, prompt: Sequence[int], said: Sequence[int], sampling: Sampling) -> Array:
    """Return the probabilities [V] of the token after `prompt` and `said`, of its logits [V].

    Greedy settings have the distribution of temperature 1, whose likeliest token they take.
    """
    row = logits.astype(np.float64).copy()
    for token in {*prompt, *said}:
        factor = sampling.repetition_penalty
        row[token] = row[token] / factor if row[token] > 0 else row[token] * factor
        times = said.count(token)
        row[token] -= times * sampling.frequency_penalty + bool(times) * sampling.presence_penalty
    weights = np.exp((row - row.max()) / (sampling.temperature or 1.0))
    weights[weights < sampling.min_p * weights.max()] = 0
    if sampling.top_k:
        weights[[np.sum(weights > each) >= sampling.top_k for each in weights]] = 0
    mass = np.array([np.sum(weights[weights > each]) for each in weights])
    weights[mass >= sampling.top_p * weights.sum()] = 0
    return weights / weights.sum()
