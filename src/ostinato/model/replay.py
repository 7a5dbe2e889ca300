"""Router replay: the experts that an engine recorded, in place of those that a model would choose itself.

Where two experts score nearly alike, rounding decides between them, and in a trainer it may decide otherwise
than in the engine. A forward pass that repeats the engine's choice computes the same function again. The
scores stay the model's own, so gradients reach its router (R3, https://arxiv.org/abs/2510.11370).

Shapes: N tokens, L layers with experts, E experts, P experts per token.
"""
# ruff: noqa: N803, N806

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ostinato.types import Routes

UNKNOWN, PADDING = -1, -2
"""The numbers in place of an expert's: of a token whose experts were not recorded, and of no token at all."""
KEPT_FIRST = 2.0
"""Above every score, which is a probability."""


class RoutesError(ValueError):
    """Recorded experts that this model cannot have chosen, or that were not used exactly once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterShape:
    """The choices that a model makes for each token.

    >>> RouterShape(layers=3, experts=8, per_token=2).width
    6
    """

    layers: int
    experts: int
    per_token: int

    @property
    def width(self) -> int:
        """Experts that one token is sent to, in all layers."""
        return self.layers * self.per_token

    def check(self, routes: Routes, where: str) -> None:
        """Raise RoutesError, naming `where`, token and layer, unless they are distinct experts of it."""
        if routes.width != self.width:
            raise RoutesError(
                f"{where}: its routes have {routes.width} experts a token, and this model chooses "
                f"{self.per_token} in each of {self.layers} layers: another model sampled it"
            )
        chosen = np.frombuffer(routes.data, "<u2").reshape(routes.tokens, self.layers, self.per_token)
        ordered = np.sort(chosen, -1)
        for wrong, what in (
            (ordered[..., -1] >= self.experts, f"a number beyond its {self.experts} experts"),
            ((ordered[..., 1:] == ordered[..., :-1]).any(-1), "an expert twice"),
        ):
            if wrong.any():
                token, layer = np.argwhere(wrong)[0]
                raise RoutesError(
                    f"{where}: the routes of token {token} in layer {layer} have {what}: "
                    f"{chosen[token, layer].tolist()}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCounts:
    """The choices of a forward pass: one is an expert of a token in a layer.

    >>> (ReplayCounts(choices=8, recorded=6, differing=1) + ReplayCounts(choices=2)).choices
    10
    """

    choices: int = 0
    recorded: int = 0
    """Those that an engine recorded; the model chose the others itself."""
    differing: int = 0
    """Recorded ones that the model would not have chosen."""
    replaced: int = 0
    """Recorded ones that scored too low, so that the model's own choice took their place."""

    @property
    def shares(self) -> dict[str, float]:
        """The share of choices that were recorded, and the shares of those that differ and were replaced."""
        return {
            "routes_recorded": self.recorded / max(1, self.choices),
            "routes_differing": self.differing / max(1, self.recorded),
            "routes_replaced": self.replaced / max(1, self.recorded),
        }

    def __add__(self, other: "ReplayCounts") -> "ReplayCounts":
        return ReplayCounts(
            choices=self.choices + other.choices,
            recorded=self.recorded + other.recorded,
            differing=self.differing + other.differing,
            replaced=self.replaced + other.replaced,
        )


class Replay:
    """The recorded experts of the N tokens of one forward pass, [N, L, P] with UNKNOWN and PADDING.

    A recorded expert is kept when its logit is at most `margin` below the P-th largest of the token: 0 keeps
    those that the model would choose itself, infinity all. In place of the others come the best of the rest.
    """

    def __init__(self, recorded_NLP: Tensor, margin: float) -> None:
        self._recorded_NLP = recorded_NLP
        self._margin = margin
        self._uses = [0] * recorded_NLP.shape[1]
        self._counts = [ReplayCounts()] * recorded_NLP.shape[1]

    def select(self, layer: int, logits_NE: Tensor, scores_NE: Tensor) -> Tensor:
        """Return the experts [N, P] of the tokens in a layer; of unknown ones those with the largest scores.

        Raises RoutesError when the layer has other tokens than were recorded.
        """
        recorded_NP = self._recorded_NLP[:, layer]
        if len(recorded_NP) != len(logits_NE):
            raise RoutesError(f"routes of {len(recorded_NP)} tokens for a pass of {len(logits_NE)}")
        self._uses[layer] += 1
        chosen_NP, self._counts[layer] = select(logits_NE, scores_NE, recorded_NP, self._margin)
        return chosen_NP

    def check_used(self, times: int = 1) -> None:
        """Raise RoutesError unless every layer used its routes so often: twice if it was computed again."""
        if wrong := {layer: uses for layer, uses in enumerate(self._uses) if uses != times}:
            raise RoutesError(f"the routes of every layer are used {times} times in a pass, got {wrong}")

    @property
    def counts(self) -> ReplayCounts:
        """The choices of one forward pass, however often it was computed."""
        return sum(self._counts, ReplayCounts())


@torch.no_grad()
def select(
    logits_NE: Tensor, scores_NE: Tensor, recorded_NP: Tensor, margin: float
) -> tuple[Tensor, ReplayCounts]:
    """Return P distinct experts of each token, and what became of the recorded ones.

    Recorded experts that are kept come first, in their order; the others follow by their scores, which are
    probabilities.
    """
    P = recorded_NP.shape[1]
    known_NP = recorded_NP >= 0
    lowest_N1 = logits_NE.topk(P, -1).values[:, -1:]
    recorded_logits_NP = logits_NE.gather(-1, recorded_NP.clamp(min=0))
    differing_NP = known_NP & (recorded_logits_NP < lowest_N1)
    kept_NP = known_NP & (recorded_logits_NP >= lowest_N1 - margin)
    places_P = torch.arange(P, 0, -1, device=logits_NE.device, dtype=scores_NE.dtype) + KEPT_FIRST
    # The experts of a token are all known or all unknown: no two columns write other values to one expert.
    first_NE = torch.zeros_like(scores_NE).scatter(-1, recorded_NP.clamp(min=0), kept_NP * places_P)
    chosen_NP = torch.where(first_NE > 0, first_NE, scores_NE).topk(P, -1).indices
    counts = torch.stack(
        [(recorded_NP != PADDING).sum(), known_NP.sum(), differing_NP.sum(), (known_NP & ~kept_NP).sum()]
    ).tolist()
    return chosen_NP, ReplayCounts(
        choices=counts[0], recorded=counts[1], differing=counts[2], replaced=counts[3]
    )


def recorded(routes: Routes | None, start: int, end: int, width: int) -> Tensor:
    """Return the experts [end - start, width] of a row's tokens from `start` on, UNKNOWN where none are."""
    if routes is None:
        return torch.full((end - start, width), UNKNOWN, dtype=torch.long)
    known = np.frombuffer(routes.data, "<u2").reshape(-1, width)[start:end].astype(np.int64)
    rest = max(0, end - start - len(known))
    return torch.cat([torch.from_numpy(known), torch.full((rest, width), UNKNOWN, dtype=torch.long)])
