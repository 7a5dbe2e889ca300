"""Broken calls: sessions that are dropped for one teach a policy to break its call whenever it is losing.

Published by the makers of Composer as a hack that their real-time training had learnt. One rollout a prompt,
compared with the others of its batch, as live sessions are. Half of the prompts are being won (0.9 of them
would be solved), half are being lost (0.1). Breaking the call ends the session.
"""

import torch

from experiments.study import Claim, Outcome, Study
from experiments.table import Table
from ostinato.rewards.monitors.change import Cusum, Resampled
from ostinato.rewards.practice.definition import PRACTICE
from ostinato.train.config import PolicyConfig
from ostinato.train.objective.group import above_the_others

WINNING, LOSING = 0, 1
SOLVED = torch.tensor([0.9, 0.1])
WORK, BREAK = 0, 1
BATCH, VERSIONS, RATE, GROUP = 256, 200, 0.05, 8
AT_FIRST = 0.05
"""The share of broken calls before training."""
HISTORY, PATHS = 1_000, 500
"""Sessions of the first version that the monitor takes for usual, each of a person, and its paths."""


def run(arm: str, seed: int) -> Outcome:
    """Train one policy: dropped or counted, in a batch or in groups of one prompt.

    Where no alarm sounds, the share of broken calls at the alarm is that at the end.
    """
    logits = torch.tensor([1 - AT_FIRST, AT_FIRST]).log().repeat(2, 1)
    policy, config = Table(logits, rate=RATE, seed=seed), PolicyConfig(tokens_per_session=1.0)
    usual = policy.draw(torch.randint(2, (HISTORY,), generator=policy.chance)).actions_N
    people = [str(number) for number in range(HISTORY)]
    resampled = Resampled.of(people, horizon=BATCH * VERSIONS, paths=PATHS, seed=seed)
    monitor = Cusum(usual.float().tolist(), resampled)
    shares, alarm = {WINNING: [AT_FIRST], LOSING: [AT_FIRST]}, None
    for _ in range(VERSIONS):
        states = torch.randint(2, (BATCH // GROUP,), generator=policy.chance).repeat_interleave(GROUP)
        choices = policy.draw(states)
        broke = choices.actions_N == BREAK
        if alarm is None and any(monitor.add(value) for value in broke.float().tolist()):
            alarm = float(policy.probabilities()[:, BREAK].mean())
        solved = torch.rand(BATCH, generator=policy.chance) < SOLVED[states]
        rewards = torch.where(broke, PRACTICE.weights["broken"], solved.float())
        kept = torch.ones(BATCH, dtype=torch.bool) if arm.startswith("counted") else ~broke
        policy.learn(
            choices, _advantages(rewards, kept, grouped="group" in arm), sessions=BATCH, config=config
        )
        for state, curve in shares.items():
            curve.append(float(policy.probabilities()[state, BREAK]))
    return Outcome(
        figures={
            "broken, winning": shares[WINNING][-1],
            "broken, losing": shares[LOSING][-1],
            "broken at the alarm": float(policy.probabilities()[:, BREAK].mean()) if alarm is None else alarm,
        },
        curves={"broken calls, winning": shares[WINNING], "broken calls, losing": shares[LOSING]},
    )


def _advantages(rewards: torch.Tensor, kept: torch.Tensor, *, grouped: bool) -> torch.Tensor:
    """Return the advantages of kept sessions, and 0 for the dropped."""
    advantages = torch.zeros(BATCH)
    parts = torch.arange(BATCH).split(GROUP) if grouped else [torch.arange(BATCH)]
    for part in parts:
        some = part[kept[part]]
        advantages[some] = torch.tensor(above_the_others(rewards[some].tolist()))
    return advantages


DROPPED, COUNTED, GROUPED = "dropped", "counted at -0.5", "dropped, groups of 8"
STUDY = Study(
    name="broken_calls",
    question="does a policy learn to break its calls when sessions with one are dropped?",
    shrunk="a bandit of two contexts stands for the model; sessions have one call",
    arms=(DROPPED, COUNTED, GROUPED),
    run=run,
    claims=(
        Claim(
            text="dropped: at least 90 % broken where the policy is losing, at most 5 % where it is winning",
            holds=lambda found: (
                found[DROPPED]["broken, losing"].low > 0.9 and found[DROPPED]["broken, winning"].high < 0.05
            ),
        ),
        Claim(
            text="counted at -0.5: at most 2 % broken in both",
            holds=lambda found: (
                max(found[COUNTED]["broken, losing"].high, found[COUNTED]["broken, winning"].high) < 0.02
            ),
        ),
        Claim(
            text="dropped: the monitor fires before a quarter of all calls is broken",
            holds=lambda found: found[DROPPED]["broken at the alarm"].high < 0.25,
        ),
        Claim(
            text="dropped, but compared within groups of one prompt: no such drift, at most 20 % broken",
            holds=lambda found: found[GROUPED]["broken, losing"].high < 0.2,
        ),
    ),
)
