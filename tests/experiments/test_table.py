"""The table's gradient, and the exact value of the world of two turns.

Covers experiments/table.py, experiments/two_turns.py and experiments/study.py.
"""

import pytest
import torch
from experiments.study import over_seeds
from experiments.table import Table
from experiments.two_turns import ACTIONS, CONTEXTS, STATES, World, sessions

from ostinato.train.config import PolicyConfig


def test_a_better_action_becomes_likelier_and_a_worse_one_rarer() -> None:
    policy = Table(torch.zeros(1, 2), rate=0.1, seed=1)
    choices = policy.draw(torch.zeros(64, dtype=torch.long))
    advantages = torch.where(choices.actions_N == 1, 1.0, -1.0)
    policy.learn(choices, advantages, sessions=64, config=PolicyConfig())
    assert policy.probabilities()[0, 1] > 0.5
    assert policy.probabilities().sum() == pytest.approx(1.0)


def test_the_expected_reward_is_what_many_sessions_have() -> None:
    chance = torch.Generator().manual_seed(3)
    world = World(solved_CAA=torch.rand(CONTEXTS, ACTIONS, ACTIONS, generator=chance))
    policy = Table(torch.randn(STATES, ACTIONS, generator=chance), rate=0.1, seed=2)
    contexts = torch.arange(CONTEXTS).repeat(20_000)
    _, first, second = sessions(policy, contexts)
    mean = float(world.rewards(contexts, first, second, policy.chance).mean())
    assert mean == pytest.approx(world.expected(policy.probabilities()), abs=0.01)


def test_older_logits_draw_and_are_the_ones_whose_probability_is_noted() -> None:
    policy = Table(torch.zeros(1, 2), rate=0.1, seed=1)
    older = torch.tensor([[0.0, 5.0]])
    choices = policy.draw(torch.zeros(200, dtype=torch.long), logits_SA=older)
    assert choices.actions_N.float().mean() > 0.9
    assert choices.logprobs_N.tolist() == older.log_softmax(-1)[0, choices.actions_N].tolist()
    assert policy.logprobs(choices).exp().tolist() == pytest.approx([0.5] * 200)


def test_an_interval_over_seeds_is_students() -> None:
    found = over_seeds([0.1, 0.2, 0.3])
    assert found.estimate == pytest.approx(0.2)
    assert found.high - found.estimate == pytest.approx(4.303 * 0.1 / 3**0.5, rel=1e-3)
