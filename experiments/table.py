"""The policy of the studies: a table of logits, trained by the package's own loss.

Shapes: S states, A actions, N choices.
"""
# ruff: noqa: N803, N806, N815

from dataclasses import dataclass

import torch
from torch import Tensor

from ostinato.train.config import PolicyConfig
from ostinato.train.objective.loss import SampledTokens, loss_of

BETAS = (0.9, 0.95)
"""The learner's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Some choices: state and action of each, the log-probability it was drawn with, the session it is of.

    >>> zero = torch.zeros(1, dtype=torch.long)
    >>> len(Choices(states_N=zero, actions_N=zero, logprobs_N=torch.zeros(1), sessions_N=zero))
    1
    """

    states_N: Tensor
    actions_N: Tensor
    logprobs_N: Tensor
    sessions_N: Tensor

    def __len__(self) -> int:
        return len(self.states_N)


class Table:
    """A softmax policy that holds one row of logits for each state."""

    def __init__(self, logits_SA: Tensor, *, rate: float, seed: int) -> None:
        self._logits_SA = logits_SA.clone().requires_grad_()
        self._optimizer = torch.optim.AdamW([self._logits_SA], rate, BETAS, weight_decay=0.0)
        self.chance = torch.Generator().manual_seed(seed)

    def probabilities(self) -> Tensor:
        """Return the probability of each action, [S, A]."""
        return self._logits_SA.detach().softmax(-1)

    def copy(self) -> Tensor:
        """Return the logits as they are now, [S, A]."""
        return self._logits_SA.detach().clone()

    def draw(
        self, states_N: Tensor, sessions_N: Tensor | None = None, logits_SA: Tensor | None = None
    ) -> Choices:
        """Choose an action in each state, by older logits where they are given."""
        logprobs_SA = (self._logits_SA.detach() if logits_SA is None else logits_SA).log_softmax(-1)
        actions_N = torch.multinomial(logprobs_SA[states_N].exp(), 1, generator=self.chance)[:, 0]
        return Choices(
            states_N=states_N,
            actions_N=actions_N,
            logprobs_N=logprobs_SA[states_N, actions_N],
            sessions_N=torch.arange(len(states_N)) if sessions_N is None else sessions_N,
        )

    def logprobs(self, choices: Choices) -> Tensor:
        """Return the present log-probability of each choice, with its gradient, [N]."""
        return self._logits_SA.log_softmax(-1)[choices.states_N, choices.actions_N]

    def learn(self, choices: Choices, advantages_N: Tensor, *, sessions: int, config: PolicyConfig) -> None:
        """Take one optimizer step on the policy gradient of all choices."""
        tokens = SampledTokens(
            logprobs_N=self.logprobs(choices),
            sampler_N=choices.logprobs_N,
            advantages_N=advantages_N,
            rows_N=choices.sessions_N,
        )
        self.step(loss_of(config)(tokens)[0].sum() / sessions)

    def step(self, loss: Tensor) -> None:
        """Take one optimizer step on a loss."""
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
