"""A policy of two turns that is small enough to add up everything that can happen.

A session samples one of three tokens, the environment answers with what that token leads to, and the session
samples one of three again. The policy is a softmax of a table of logits, one line a state: the start, and one
for each answer. Expectations are sums over all outcomes and gradients are by the very functions of
`train.objective`, so what is compared is exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import torch
from torch import Tensor

from ostinato.train.config import PolicyConfig
from ostinato.train.losses import token_logprobs
from ostinato.train.objective.loss import SampledTokens, loss_of
from ostinato.types import Group, Sample

TOKENS = 3
OUTCOMES = tuple(product(range(TOKENS), repeat=2))
Outcome = tuple[int, int]
Credit = Callable[[Sequence[Outcome]], list[float]]


def table(seed: int, spread: float = 0.8) -> Tensor:
    """The logits of the start and of the three states that the first token leads to."""
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(1 + TOKENS, TOKENS, generator=generator, dtype=torch.float64)


@dataclass(kw_only=True)
class TwoTurns:
    """The policy pi, the policy mu that sampled, a reference, and the reward of every outcome."""

    logits: Tensor = field(default_factory=lambda: table(0).requires_grad_())
    sampler: Tensor = field(default_factory=lambda: table(0))
    reference: Tensor = field(default_factory=lambda: table(5))
    rewards: Tensor = field(default_factory=lambda: 2 * table(9)[1:])

    def logprobs(self, logits: Tensor, outcome: Outcome) -> Tensor:
        """The log-probabilities of the two tokens of an outcome, [2]."""
        states = logits[[0, 1 + outcome[0]]]
        return token_logprobs(states, torch.tensor(outcome))

    def chance(self, logits: Tensor, outcome: Outcome) -> Tensor:
        return self.logprobs(logits, outcome).sum().exp()

    def reward(self, outcome: Outcome) -> float:
        return float(self.rewards[outcome])

    def k1(self, outcome: Outcome) -> float:
        """log pi - log pi_reference over both tokens, a number without gradient."""
        both = self.logprobs(self.logits, outcome) - self.logprobs(self.reference, outcome)
        return float(both.sum().detach())

    def divergence(self) -> Tensor:
        """KL(pi | reference) of whole sessions."""
        total = torch.zeros((), dtype=torch.float64)
        for outcome in OUTCOMES:
            ratio = self.logprobs(self.logits, outcome).sum() - self.logprobs(self.reference, outcome).sum()
            total = total + self.chance(self.logits, outcome) * ratio
        return total

    def value(self) -> Tensor:
        """The expected reward under pi."""
        parts = [self.chance(self.logits, each) * self.reward(each) for each in OUTCOMES]
        return torch.stack(parts).sum()

    def gradient(self, value: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(value, self.logits)
        return found

    def groups(self, size: int) -> tuple[list[tuple[Outcome, ...]], Tensor]:
        """Every group that mu can sample, and the probability of each."""
        chances = torch.stack([self.chance(self.sampler, each) for each in OUTCOMES]).detach()
        numbers = torch.tensor(list(product(range(len(OUTCOMES)), repeat=size)))
        return list(product(OUTCOMES, repeat=size)), chances[numbers].prod(1)

    def expected(self, size: int, credit: Credit, config: PolicyConfig) -> Tensor:
        """The expected ascent direction, minus the gradient of the loss, over all groups of a size.

        `credit` gives the advantages of a group of outcomes. All groups go through the trainer's functions at
        once, each advantage multiplied by the probability of its group; the constant of tokens is left out.
        """
        groups, chances = self.groups(size)
        everything = [outcome for group in groups for outcome in group]
        states = torch.tensor([each for first, _ in everything for each in (0, 1 + first)])
        tokens = torch.tensor(everything).flatten()
        logprobs = token_logprobs(self.logits[states], tokens)
        behaviour = token_logprobs(self.sampler[states], tokens)
        rows = torch.arange(len(everything)).repeat_interleave(2)
        advantages = torch.tensor([credit(group) for group in groups], dtype=torch.float64)
        weighed = (advantages * chances[:, None]).flatten().repeat_interleave(2)
        sampled = SampledTokens(
            logprobs_N=logprobs, sampler_N=behaviour.detach(), advantages_N=weighed, rows_N=rows
        )
        return -self.gradient(loss_of(config)(sampled)[0].sum() / size)

    def recorded(self, group: Sequence[Outcome], advantages: Sequence[float]) -> Group:
        """The group as the ledger would hold it: one row a session, its answer in between."""
        samples = [
            Sample(
                session_id=f"s{i}",
                turns=(0, 1),
                ids=(0, first, TOKENS + first, second),
                mask=(False, True, False, True),
                logprobs=(0.0, *_spaced(self.logprobs(self.sampler, (first, second)).tolist())),
                versions=(0, 0, 0, 0),
                temperatures=(1.0,) * 4,
                advantage=advantage,
            )
            for i, ((first, second), advantage) in enumerate(zip(group, advantages, strict=True))
        ]
        rewards = tuple(self.reward(each) for each in group)
        return Group(id="g", prompt="p", samples=tuple(samples), rewards=rewards)


def _spaced(both: Sequence[float]) -> tuple[float, float, float]:
    return both[0], 0.0, both[1]
