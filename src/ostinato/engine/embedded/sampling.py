"""The choice of tokens: by the inverse CDF of one uniform number per token.

So the tokens of a request depend on its own seed and not on the other requests of the batch. `kernel.c` does
the same for its own logits.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor


def sample(logits: Tensor, settings: NDArray[Any], uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Return tokens [B] and their natural log-probabilities [B].

    `logits` have shape [B, V], `settings` (as in a SlotTable) and `uniform` in [0, 1) have shape [B].
    Temperature 0 takes the likeliest token; its log-probability is then that of temperature 1.
    """
    temperature = torch.from_numpy(settings["temperature"].astype(np.float32))
    greedy = temperature <= 0
    scale = torch.where(greedy, 1.0, temperature)
    scaled = logits / scale[:, None]
    for row, bent in enumerate(settings):
        if bent["min_p"] > 0 or bent["top_k"] > 0 or bent["top_p"] < 1:
            scaled[row].masked_fill_(~kept(scaled[row], bent), -torch.inf)
    logprobs = torch.log_softmax(scaled, -1)
    cdf = logprobs.exp().cumsum(-1)
    target = uniform.float()[:, None] * cdf[:, -1:]
    # right=True never lands on a token of probability zero; rounding at the very end could pass the last one.
    drawn = torch.searchsorted(cdf, target, right=True).clamp_(max=logits.shape[-1] - 1)[:, 0]
    tokens = torch.where(greedy, logits.argmax(-1), drawn) if greedy.any() else drawn
    return tokens, logprobs.gather(-1, tokens[:, None])[:, 0]


def kept(logits: Tensor, settings: Any) -> Tensor:
    """Return which tokens of a row [V] stay after min_p, then top_k, then top_p.

    A token stays while fewer than top_k are likelier, and these have less than top_p of what top_k leaves:
    of equal tokens all stay or none, as vLLM has it for top_k.
    """
    weights = (logits - logits.max()).exp()
    ordered = weights.sort(descending=True).values
    likelier = torch.searchsorted(-ordered, -weights)
    stays: Tensor = weights >= settings["min_p"]
    if settings["top_k"] > 0:
        stays &= likelier < settings["top_k"]
    if settings["top_p"] < 1:
        mass = F.pad(ordered.double().cumsum(0), (1, 0))[likelier]
        stays &= mass < settings["top_p"] * weights[stays].double().sum()
    return stays


def penalise(logits: Tensor, tokens: NDArray[np.int32], prompt: int, settings: Any) -> None:
    """Change a row [V] in place by what `tokens`, the first `prompt` of them given, hold already."""
    repetition, frequency, presence = (
        float(settings[f"{name}_penalty"]) for name in ("repetition", "frequency", "presence")
    )
    if repetition != 1:
        seen = torch.from_numpy(np.unique(tokens)).long()
        known = logits[seen]
        logits[seen] = torch.where(known > 0, known / repetition, known * repetition)
    if frequency or presence:
        counts = torch.bincount(torch.from_numpy(tokens[prompt:]).long(), minlength=len(logits))
        logits -= counts * frequency + (counts > 0) * presence
