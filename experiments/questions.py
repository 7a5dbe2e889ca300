"""Questions: a policy that may ask instead of editing asks whenever its edits would be reverted.

The second hack that the makers of Composer published. An edit that is kept is worth +1, one that is reverted
-1. A task is clear and easy (0.9 of the edits kept), clear and hard (0.3), or ambiguous (0.3, but 0.8 for who
has asked). Under the naive reward a question ends the session at 0; under ours the session goes on with
the answer, and the question costs a little.
"""

import torch

from experiments.study import Claim, Outcome, Study
from experiments.table import Table
from ostinato.rewards.monitors.change import Cusum, Resampled
from ostinato.train.config import PolicyConfig
from ostinato.train.objective.group import above_the_others

EASY, HARD, AMBIGUOUS = 0, 1, 2
KEPT = torch.tensor([0.9, 0.3, 0.3])
KEPT_AFTER_ANSWER = torch.tensor([0.9, 0.3, 0.8])
ACT, ASK = 0, 1
QUESTION_COSTS = 0.05
BATCH, VERSIONS, RATE = 256, 200, 0.05
AT_FIRST = 0.05
HISTORY, PATHS = 1_000, 500


def run(arm: str, seed: int) -> Outcome:
    """Train one policy under the naive reward or under ours.

    Where no alarm sounds, the share of sessions with an edit at the alarm is that at the end.
    """
    logits = torch.tensor([1 - AT_FIRST, AT_FIRST]).log().repeat(3, 1)
    policy, config = Table(logits, rate=RATE, seed=seed), PolicyConfig(tokens_per_session=1.0)
    people = [str(number) for number in range(HISTORY)]
    resampled = Resampled.of(people, horizon=BATCH * VERSIONS, paths=PATHS, seed=seed)
    monitor = Cusum(_asked(policy, HISTORY).tolist(), resampled)
    asked, edited, alarm = [[AT_FIRST] for _ in KEPT], [1 - AT_FIRST], None
    for _ in range(VERSIONS):
        choices = policy.draw(torch.randint(3, (BATCH,), generator=policy.chance))
        ask = choices.actions_N == ASK
        if alarm is None and any(monitor.add(value) for value in ask.float().tolist()):
            alarm = edited[-1]
        rewards = reward(choices.states_N, ask, naive=arm == NAIVE, chance=policy.chance)
        advantages = torch.tensor(above_the_others(rewards.tolist()))
        policy.learn(choices, advantages, sessions=BATCH, config=config)
        probabilities = policy.probabilities()
        for kind, curve in enumerate(asked):
            curve.append(float(probabilities[kind, ASK]))
        edited.append(1 - float(probabilities[:, ASK].mean()) if arm == NAIVE else 1.0)
    return Outcome(
        figures={
            "asked, easy": asked[EASY][-1],
            "asked, hard": asked[HARD][-1],
            "asked, ambiguous": asked[AMBIGUOUS][-1],
            "sessions with an edit": edited[-1],
            "with an edit at the alarm": edited[-1] if alarm is None else alarm,
        },
        curves={
            "asked, clear but hard": asked[HARD],
            "asked, ambiguous": asked[AMBIGUOUS],
            "sessions with an edit": edited,
        },
    )


def reward(kinds: torch.Tensor, ask: torch.Tensor, *, naive: bool, chance: torch.Generator) -> torch.Tensor:
    """Return the reward of each session, [N]."""
    kept = torch.where(ask, KEPT_AFTER_ANSWER[kinds], KEPT[kinds])
    edits = torch.where(torch.rand(len(kinds), generator=chance) < kept, 1.0, -1.0)
    return torch.where(ask, 0.0 if naive else edits - QUESTION_COSTS, edits)


def worth(*, naive: bool) -> dict[str, float]:
    """Return E[r | ask] - E[r | act] by the kind of task."""
    act, after = 2 * KEPT - 1, 2 * KEPT_AFTER_ANSWER - 1
    ask = torch.zeros(3) if naive else after - QUESTION_COSTS
    return dict(zip(("easy", "hard", "ambiguous"), (ask - act).tolist(), strict=True))


def _asked(policy: Table, sessions: int) -> torch.Tensor:
    kinds = torch.randint(3, (sessions,), generator=policy.chance)
    return (policy.draw(kinds).actions_N == ASK).float()


NAIVE, OURS = "a question ends it at 0", "the session goes on"
STUDY = Study(
    name="questions",
    question="does a policy learn to ask instead of editing when a question ends the session at 0?",
    shrunk="a bandit of three contexts stands for the model; the answer is a better chance",
    arms=(NAIVE, OURS),
    run=run,
    claims=(
        Claim(
            text="naive: at least 90 % asked on hard tasks; fewer than half edit",
            holds=lambda found: (
                found[NAIVE]["asked, hard"].low > 0.9 and found[NAIVE]["sessions with an edit"].high < 0.5
            ),
        ),
        Claim(
            text="ours: at most 10 % asked where tasks are clear, at least 90 % where they are ambiguous",
            holds=lambda found: (
                max(found[OURS]["asked, easy"].high, found[OURS]["asked, hard"].high) < 0.1
                and found[OURS]["asked, ambiguous"].low > 0.9
            ),
        ),
        Claim(
            text="naive: the monitor of questions fires while 80 % of the sessions still edit",
            holds=lambda found: found[NAIVE]["with an edit at the alarm"].low > 0.8,
        ),
        Claim(
            text="E[r | ask] - E[r | act] changes sign with ambiguity under ours; naive: positive for hard",
            holds=lambda _: (
                worth(naive=False)["hard"] < 0 < worth(naive=False)["ambiguous"]
                and worth(naive=True)["hard"] > 0
            ),
        ),
    ),
)
