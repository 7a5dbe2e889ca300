"""The surrogate policy: its start checkpoint, and the choices of each published version at each view.

The start is our decoder without a layer, a table of the next token by the last one. It is a checkpoint like
any other: the shipped trainer learns from it, publishes it and restores it. Each view is a direction of its
own at first, so the kinds of request are learnt apart until training mixes them.

The chances are computed from the published weights, as the trainer computes them, so that what is recorded
beside a token is what the trainer finds again.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from ostinato.model.config import META, ModelConfig
from ostinato.model.tokenizer import Tokenizer
from ostinato.types import Completion, FinishReason
from ostinato_lab.week.acts import ACTS, AT_FIRST, TEXT_OF_VIEW, TEXTS, VIEWS, Act, Vocabulary

if TYPE_CHECKING:
    from ostinato.store import Objects

EPS = 1e-6
"""That of the decoder's normalisation."""
NEVER = -16.0
"""The logit of a token that is no act of its turn."""
BYTES_AND_SPECIALS = 259


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

    def __init__(self, objects: "Objects", vocabulary: Vocabulary) -> None:
        self._objects = objects
        self.vocabulary = vocabulary
        self.of = cache(self._of)

    def _of(self, version: int) -> ActPolicy:
        from ostinato.sync import Subscriber

        tensors = Subscriber(self._objects).fetch(version)
        arrays = {name: np.asarray(tensor, dtype=np.float64) for name, tensor in tensors.items()}
        return policy_of(version, arrays, self.vocabulary)


def policy_of(version: int, weights: Mapping[str, NDArray[np.float64]], vocabulary: Vocabulary) -> ActPolicy:
    """Return the policy of the weights of a decoder without a layer."""
    views = list(vocabulary.views.values())
    hidden = weights["model.embed_tokens.weight"][views]
    hidden = hidden / np.sqrt(np.square(hidden).mean(axis=1, keepdims=True) + EPS)
    logits = (hidden * weights["model.norm.weight"]) @ weights["lm_head.weight"].T
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return ActPolicy(
        version=version,
        cumulated={view: list(accumulate(row.tolist())) for view, row in zip(views, chances, strict=True)},
    )


def act_of(vocabulary: Vocabulary, completion: Completion) -> Act:
    """Return the act that was sampled; a token that is none is a call that cannot be read."""
    return vocabulary.acts.get(completion.ids[0], Act.BREAK)


def write_start(directory: Path, likely: dict[str, float] | None = None) -> None:
    """Write the checkpoint unless it is there; `likely` replaces the first chances of some acts."""
    from ostinato.model.checkpoint import finish

    if (directory / META).exists():
        return
    texts = [*TEXTS.values(), *TEXT_OF_VIEW.values()]
    tokenizer = Tokenizer.train(texts, BYTES_AND_SPECIALS + len(texts), texts)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(directory)
    size = len(VIEWS)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=size,
        layers=0,
        heads=1,
        kv_heads=1,
        head_dim=size,
        intermediate_size=size,
        tied=False,
    )
    (directory / "config.json").write_text(json.dumps(config.to_hf()))
    save_file(_tensors(Vocabulary.of(tokenizer), config, likely or {}), directory / "model.safetensors")
    finish(directory, version=0, harness="week")


def _tensors(vocabulary: Vocabulary, config: ModelConfig, likely: dict[str, float]) -> dict[str, np.ndarray]:
    """Return weights whose logits are the logarithms of the first chances."""
    size = config.hidden_size
    embedding = np.zeros((config.vocab_size, size), dtype=np.float32)
    head = np.full((config.vocab_size, size), NEVER / math.sqrt(size), dtype=np.float32)
    for place, view in enumerate(VIEWS):
        embedding[vocabulary.views[view], place] = 1.0
        for act in ACTS[view[0]]:
            chance = likely.get(act.value, AT_FIRST[act])
            head[vocabulary.token_of[act], place] = math.log(chance) / math.sqrt(size)
    return {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": np.ones(size, dtype=np.float32),
        "lm_head.weight": head,
    }
