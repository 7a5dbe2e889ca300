"""The check that an engine serves the weights that it should, by the log-probabilities of one short prompt.

What it says of the prompt is compared with what it said before, and for a model that a processor can score
in seconds also with what our own decoder says of the version's weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from ostinato.engine.base import EngineError
from ostinato.engine.choose import SMALL
from ostinato.engine.vllm.calls import VllmCalls
from ostinato.model.config import ModelConfig, ModelConfigError
from ostinato.model.decoder import Decoder, check_weights
from ostinato.model.tensor_files import CONFIG, TensorFiles, read_json

PROBED = 48
"""The tokens of the prompt."""
APART, OTHER = 0.1, 0.3
"""The mean difference of log-probabilities that asking the same engine later explains, and the one that other
types and kernels explain; those of two models differ by more than one."""
NOISE, LEAST = 3.0, 1e-6
"""A change is seen when it is so many times the difference of asking twice, and at least so much."""
Scores = tuple[float, ...]
"""The log-probability of each token of the prompt but the first."""


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the mean absolute difference of two equally long rows."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / max(1, len(one))


async def asked(calls: VllmCalls, model: str, ids: Sequence[int]) -> Scores:
    """Return the scores that an engine gives to a prompt under the name `model`; () when it gives none.

    `prompt_logprobs` are vLLM's. Raises EngineError.
    """
    body = {"model": model, "prompt": list(ids), "max_tokens": 1, "prompt_logprobs": 0, "stream": False}
    choice = (await calls.post("/v1/completions", body | {"add_special_tokens": False}))["choices"][0]
    if not (rows := choice.get("prompt_logprobs")):
        return ()
    try:
        return tuple(float(row[str(id_)]["logprob"]) for row, id_ in zip(rows[1:], ids[1:], strict=True))
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError("its prompt_logprobs are not of the ids that were sent") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The scores of the weights that an engine was started with.

    >>> Seen(scores=(-1.0, -2.0), noise=0.0).why_not((-1.0, -2.5))
    'its log-probabilities differ by 0.25 from those at the start: it serves other weights'
    """

    scores: Scores
    noise: float
    """The difference of asking twice."""

    def why_not(self, now: Scores, released: Scores = ()) -> str:
        """Return the reason why what it says `now` is not of these weights, or of those `released` on it
        later; empty when it is."""
        if (off := distance(now, released or self.scores)) > APART:
            return (
                f"its log-probabilities differ by {off:.2g} from those at the start: it serves other weights"
            )
        told_apart = released and distance(released, self.scores) > self._visible
        if told_apart and off > distance(now, self.scores):
            return "its log-probabilities are again those of the weights it was started with"
        return ""

    @property
    def _visible(self) -> float:
        return max(LEAST, NOISE * self.noise)

    def unseen(self, now: Scores, own: tuple[Scores, Scores] | None) -> str:
        """Return the reason why an adapter does not show in what the engine says `now`; empty when it does.

        `own` are our scores of the first weights and of the version's. The change of the engine's scores has
        to be nearer to that of ours than to none, so that an adapter that is added at another scale, or
        another one in its place, is noticed.
        """
        size = distance(now, self.scores)
        if size <= self._visible:
            return f"its log-probabilities change by {size:.2g}, and by {self.noise:.2g} from asking twice"
        if own is None:
            return ""
        changed = [a - b for a, b in zip(now, self.scores, strict=True)]
        wanted = [b - a for a, b in zip(*own, strict=True)]
        off, most = distance(changed, wanted), distance(*own)
        if off > most / 2 + self._visible:
            return f"its log-probabilities change by {size:.2g}, {off:.2g} off the version's own {most:.2g}"
        return ""


def not_own(now: Scores, own: tuple[Scores, Scores]) -> str:
    """Return the reason why an engine serves other weights than the version's; empty when it serves them.

    `own` are our scores of the first weights and of the version's. A change that is smaller than the
    difference of two types is not told from none.
    """
    first, version = own
    if (off := distance(now, version)) > OTHER:
        return f"its log-probabilities are {off:.2g} off the version's"
    if off - distance(now, first) > distance(first, version) / 2:
        return "its log-probabilities are those of the weights it was started with"
    return ""


class OwnScores:
    """The scores that our own decoder gives to a prompt, in float32."""

    def __init__(self, config: ModelConfig, base: TensorFiles, ids: Sequence[int]) -> None:
        self._config, self._ids = config, ids
        self.base = self.of({name: base.tensor(name) for name in base.entries})

    @classmethod
    def of_checkpoint(cls, checkpoint: Path, base: TensorFiles, ids: Sequence[int]) -> Self | None:
        """Return None for a model that our decoder does not know, or that takes it more than seconds."""
        try:
            config = ModelConfig.from_hf(read_json(checkpoint / CONFIG))
        except ModelConfigError:
            return None
        return cls(config, base, ids) if config.parameters <= SMALL else None

    @torch.no_grad()
    def of(self, tensors: Mapping[str, Tensor]) -> Scores:
        decoder = Decoder(self._config, initialise=False)
        own = decoder.state_dict()
        given = {name: tensor for name, tensor in tensors.items() if name in own}
        check_weights(own, given)
        decoder.load_state_dict(given)
        ids = torch.tensor(self._ids)
        scores = torch.log_softmax(decoder(ids[None])[0][0, :-1], -1).gather(1, ids[1:, None])[:, 0]
        return tuple(scores.tolist())
