"""The world of two turns that some studies share: small enough to add up every outcome.

A session is given one of C contexts, chooses one of A actions, sees which, and chooses one of A again; its
chance to be solved depends on all three. States are numbered: the contexts first, then (context, first).
"""
# ruff: noqa: N803, N806, N815

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.table import Choices, Table

CONTEXTS, ACTIONS = 4, 4
STATES = CONTEXTS * (1 + ACTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The chance that a session is solved, by context, first and second action, [C, A, A].

    >>> World(solved_CAA=torch.full((4, 4, 4), 0.5)).expected(torch.full((20, 4), 0.25))
    0.5
    """

    solved_CAA: Tensor

    def expected(self, probabilities_SA: Tensor) -> float:
        """Return the exact chance that a session of this policy is solved."""
        first_CA = probabilities_SA[:CONTEXTS]
        second_CAA = probabilities_SA[CONTEXTS:].view(CONTEXTS, ACTIONS, ACTIONS)
        return round(float((first_CA[:, :, None] * second_CAA * self.solved_CAA).sum() / CONTEXTS), 9)

    def rewards(
        self, contexts_N: Tensor, first_N: Tensor, second_N: Tensor, chance: torch.Generator
    ) -> Tensor:
        """Return 1 for each session that is solved, 0 for the others."""
        return (
            torch.rand(len(contexts_N), generator=chance) < self.solved_CAA[contexts_N, first_N, second_N]
        ).float()


def second_states(contexts_N: Tensor, first_N: Tensor) -> Tensor:
    """Return the state of each session before its second action."""
    return CONTEXTS + contexts_N * ACTIONS + first_N


def sessions(
    policy: Table, contexts_N: Tensor, logits_SA: Tensor | None = None
) -> tuple[Choices, Tensor, Tensor]:
    """Sample whole sessions; return their choices, first turns before second ones, and both actions, [N]."""
    numbers_N = torch.arange(len(contexts_N))
    first = policy.draw(contexts_N, numbers_N, logits_SA)
    second = policy.draw(second_states(contexts_N, first.actions_N), numbers_N, logits_SA)
    both = Choices(
        states_N=torch.cat([first.states_N, second.states_N]),
        actions_N=torch.cat([first.actions_N, second.actions_N]),
        logprobs_N=torch.cat([first.logprobs_N, second.logprobs_N]),
        sessions_N=torch.cat([numbers_N, numbers_N]),
    )
    return both, first.actions_N, second.actions_N
