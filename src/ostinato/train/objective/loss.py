"""The loss of the policy gradient: of each sampled token, chosen by the settings.

Shapes: N sampled tokens, flattened over rows.
"""
# ruff: noqa: N802, N806, N815

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ostinato.extend import PluginError, guarded
from ostinato.train.config import LOSSES, PolicyConfig
from ostinato.train.objective.corrections import Correction, correction_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTokens:
    """What a loss is made of: the sampled tokens of some rows; a row's tokens always come together."""

    logprobs_N: Tensor
    """log pi under the present weights, at the temperature of each token, with its gradient."""
    sampler_N: Tensor
    """log mu, as the engine recorded it."""
    advantages_N: Tensor
    """How much better the session of the token was than its peers."""
    rows_N: Tensor
    """The number of the row, which is one segment of a session."""

    @property
    def deltas_N(self) -> Tensor:
        """log pi - log mu, without gradient."""
        return self.logprobs_N.detach() - self.sampler_N


Loss = Callable[[SampledTokens], tuple[Tensor, Tensor]]
"""A function from tokens to the loss of each [N], with its gradient, and which of them it bounded or removed
[N]. The step adds them up over all rows, and divides by the number of sessions and a constant."""


def loss(name: str) -> Callable[[Loss], Loss]:
    """Return a decorator that adds a loss, for `loss = "NAME"` in `[refine.policy]`.

    Its name and the hash of its plug-in stand in the manifest of each version that it trained. An error in it
    ends the trainer, which goes on from its last version once mended.
    """

    def add(function: Loss) -> Loss:
        LOSSES.add(name, _checked(name, function))
        return function

    return add


def loss_of(config: PolicyConfig) -> Loss:
    """Return the loss that the settings name."""
    added: Loss | None = LOSSES[config.loss]
    if added is not None:
        return added
    correct = correction_of(config)
    return lambda tokens: weighted(tokens, correct)


def weighted(tokens: SampledTokens, correct: Correction) -> tuple[Tensor, Tensor]:
    """Return -A * weight * log pi, and which weights were cut; the weights have no gradient."""
    weights_N, cut_N = correct(tokens.deltas_N, tokens.rows_N)
    return -(tokens.advantages_N * weights_N.detach() * tokens.logprobs_N), cut_N


def _checked(name: str, function: Loss) -> Loss:
    """Return a plug-in's loss that is refused unless it has a value and a word on each token."""
    call = guarded(f"loss {name}", function)

    def check(tokens: SampledTokens) -> tuple[Tensor, Tensor]:
        losses_N, cut_N = call(tokens)
        wanted = tokens.logprobs_N.shape
        if losses_N.shape != wanted or cut_N.shape != wanted or not losses_N.requires_grad:
            raise PluginError(
                f"the loss {name} returned {list(losses_N.shape)} and {list(cut_N.shape)} for {list(wanted)} "
                "tokens: return the loss of each, made of logprobs_N, and whether it was cut"
            )
        return losses_N, cut_N

    return check
