"""Learning from one rollout a prompt: what adversaries do to it, and how noisy its gradient is.

    python -m benchmarks.influence [--seeds 20] [--json] [--plot docs/influence.svg]

A tabular softmax policy chooses one of four actions for each of eight kinds of request, whose usual rewards
differ. People bring Pareto(1.5) many requests, each once. Adversaries bring twenty times as many as others
and report the opposite of what they got.

- `curve`: the true reward after 60 steps by the share of adversaries among the people, with the cap on a
  person's share (`train.objective.influence`, 1 %) and without one; and how far the capped gradient of the
  first step moved, as a part of the computed bound, which must stay below 1.
- `variance`: the variance of the gradient by batch size under no baseline, the batch's mean, other people's
  mean of the stratum (what ships), and one that was learned from earlier batches.

Intervals are 95 %, Student's over seeds.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

from benchmarks.measure import Run, table
from ostinato.train.objective.influence import Floats, influence_bound, person_advantages, person_weights

Rng = np.random.Generator
KINDS, ACTIONS, STEPS, RATE, SHARE = 8, 4, 60, 2.0, 0.01
ADVERSARIES = (0.0, 0.05, 0.1, 0.2, 0.3)
BATCHES = (32, 64, 128, 256, 512)


def world(seed: int) -> Floats:
    """Return the chance of a good outcome, (kinds, actions): hard kinds and easy ones, one action is best."""
    rng = np.random.default_rng([seed, 1])
    base = rng.uniform(0.1, 0.6, (KINDS, 1)) + np.zeros((KINDS, ACTIONS))
    base[np.arange(KINDS), rng.integers(0, ACTIONS, KINDS)] += 0.35
    return base


def policy(logits: Floats) -> Floats:
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exp / exp.sum(axis=1, keepdims=True))


def scores(chances: Floats, kinds: Floats, actions: Floats) -> Floats:
    """Return the gradient of each session's log-probability, (sessions, kinds, actions); its norm is < √2."""
    n = len(kinds)
    made = np.zeros((n, KINDS, ACTIONS))
    made[np.arange(n), kinds] = -chances[kinds]
    made[np.arange(n), kinds, actions] += 1.0
    return made


def sample(rng: Rng, good: Floats, chances: Floats, n: int) -> tuple[Any, Any, Any]:
    kinds = rng.integers(0, KINDS, n)
    actions = (rng.random((n, 1)) > np.cumsum(chances[kinds], axis=1)[:, :-1]).sum(axis=1)
    return kinds, actions, (rng.random(n) < good[kinds, actions]).astype(float)


def attacked(seed: int, adversaries: float, share: float, people: int = 200) -> tuple[float, float]:
    """Return the true reward after training, and the first gradient's movement as a part of its bound."""
    rng, good, logits = np.random.default_rng([seed, 2]), world(seed), np.zeros((KINDS, ACTIONS))
    liars, part = np.arange(people) < round(adversaries * people), 0.0
    for step in range(STEPS):
        each = np.minimum(np.ceil(rng.pareto(1.5, people) + 1), 40).astype(int)
        who = np.repeat(np.arange(people), np.where(liars, 20, 1) * each)
        chances = policy(logits)
        kinds, actions, rewards = sample(rng, good, chances, len(who))
        told = np.where(liars[who], 1 - rewards, rewards)
        names, strata = [str(one) for one in who], [str(kind) for kind in kinds]
        weights = person_weights(names, share)
        made = scores(chances, kinds, actions)
        gradient = (
            np.tensordot(person_advantages(list(told), names, strata, weights), made, 1) / weights.sum()
        )
        if step == 0 and liars.any():
            honest = person_advantages(list(rewards), names, strata, weights)
            moved = float(np.linalg.norm(gradient - np.tensordot(honest, made, 1) / weights.sum()))
            of = {str(one) for one in np.flatnonzero(liars)}
            part = moved / influence_bound(names, strata, weights, of, score=float(np.sqrt(2)))
        logits += RATE * KINDS * gradient
    return float((policy(logits) * good).sum(axis=1).mean()), part


Baseline = Callable[[Floats, Any, Floats], Floats]


def of_stratum(rewards: Floats, kinds: Any, _: Floats) -> Floats:
    names, strata = [str(one) for one in range(len(rewards))], [str(kind) for kind in kinds]
    return rewards - person_advantages(list(rewards), names, strata, np.ones(len(rewards)))


BASELINES: dict[str, Baseline] = {
    "none": lambda rewards, kinds, learned: np.zeros(len(rewards)),
    "batch": lambda rewards, kinds, learned: (rewards.sum() - rewards) / (len(rewards) - 1),
    "stratum": of_stratum,
    "learned": lambda rewards, kinds, learned: learned[kinds],
}


def variances(seed: int, batch: int, repeats: int = 200) -> dict[str, float]:
    """Return the total variance of the mean gradient by baseline, at a policy that is half trained."""
    rng, good = np.random.default_rng([seed, 3]), world(seed)
    chances = policy(1.5 * (good - good.mean(axis=1, keepdims=True)) / 0.35)
    kinds, _, rewards = sample(rng, good, chances, 2000)  # four earlier batches, all that a critic has seen
    learned = np.array([rewards[kinds == kind].mean() for kind in range(KINDS)])
    gradients: dict[str, list[Floats]] = {name: [] for name in BASELINES}
    for _ in range(repeats):
        kinds, actions, rewards = sample(rng, good, chances, batch)
        made = scores(chances, kinds, actions)
        for name, baseline in BASELINES.items():
            gradients[name].append(np.tensordot(rewards - baseline(rewards, kinds, learned), made, 1) / batch)
    return {name: float(np.var(np.stack(all_), axis=0).sum()) for name, all_ in gradients.items()}


def interval(values: list[float]) -> dict[str, float]:
    mean, n = float(np.mean(values)), len(values)
    half = float(t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return {"mean": mean, "low": mean - half, "high": mean + half, "n": n}


def plot(figures: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4))
    for name, points in figures["curve"].items():
        rows = [points[str(a)]["reward"] for a in ADVERSARIES]
        bars = [[r["mean"] - r["low"] for r in rows], [r["high"] - r["mean"] for r in rows]]
        left.errorbar([100 * a for a in ADVERSARIES], [r["mean"] for r in rows], yerr=bars, label=name)
    left.set(xlabel="adversaries among the people, %", ylabel="true reward after 60 steps")
    for name in BASELINES:
        means = [figures["variance"][str(batch)][name]["mean"] for batch in BATCHES]
        right.loglog(BATCHES, means, marker="o", label=name)
    right.set(xlabel="sessions in a batch", ylabel="variance of the gradient")
    left.legend(), right.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    seeds = range(options.seeds)
    figures: dict[str, Any] = {"curve": {}, "variance": {}}
    for name, share in (("capped at 1 %", SHARE), ("no cap", 1.0)):
        figures["curve"][name] = {}
        for adversaries in ADVERSARIES:
            found = [attacked(seed, adversaries, share) for seed in seeds]
            figures["curve"][name][str(adversaries)] = {
                "reward": interval([reward for reward, _ in found]),
                "part_of_the_bound": max(part for _, part in found),
            }
    for batch in BATCHES:
        every = [variances(seed, batch) for seed in seeds]
        figures["variance"][str(batch)] = {name: interval([row[name] for row in every]) for name in BASELINES}
    rows = [
        [name, f"{100 * float(a):.0f} %", f"{p['reward']['mean']:.3f}", f"{p['part_of_the_bound']:.2f}"]
        for name, points in figures["curve"].items()
        for a, p in points.items()
    ]
    table(["", "adversaries", "true reward", "part of the bound"], rows)
    table(
        ["sessions", *BASELINES],
        [[b, *(f"{row[n]['mean']:.2e}" for n in BASELINES)] for b, row in figures["variance"].items()],
    )
    if options.plot is not None:
        plot(figures, options.plot)
    run.finish(figures, as_json=options.json)


if __name__ == "__main__":
    with Run("influence", "numpy", "scipy") as opened:
        main(opened)
