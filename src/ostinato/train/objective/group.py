"""Advantages in a group of sessions of one prompt: how much better a session was than its peers. Torch-free.

No division by the standard deviation anywhere: it would blow up tiny differences in groups that are all
right or all wrong. No division by length either: it would make long failures cheap.
"""

import math
from collections.abc import Callable, Sequence

from ostinato.extend import PluginError, guarded
from ostinato.train.config import BASELINES

Baseline = Callable[[Sequence[float]], list[float]]
"""A function from the rewards of a group to the advantages of its sessions, in the same order."""


def above_the_others(rewards: Sequence[float]) -> list[float]:
    """Return each reward minus the mean of the others of the group (leave-one-out).

    They add up to 0; a session that is alone gets 0. A session's own reward is not in its baseline, so the
    expected gradient is that of the expected reward, for groups of any size (Kool et al. 2019, "Buy 4
    REINFORCE samples, get a baseline for free").

    >>> above_the_others([1.0, 0.0, 0.0, 0.0, 1.0])
    [0.75, -0.5, -0.5, -0.5, 0.75]
    """
    return [above(reward, rewards) for reward in rewards]


def above_the_mean(rewards: Sequence[float]) -> list[float]:
    """Return each reward minus the mean of the whole group (Liu et al. 2025, arXiv:2503.20783, Dr. GRPO).

    A group of G has (1 - 1/G) times the expected gradient of leave-one-out, so small groups count for less.

    >>> above_the_mean([1.0, 0.0, 0.0, 0.0, 1.0])
    [0.6, -0.4, -0.4, -0.4, 0.6]
    """
    mean = sum(rewards) / max(1, len(rewards))
    return [reward - mean for reward in rewards]


def baseline(name: str) -> Callable[[Baseline], Baseline]:
    """Return a decorator that adds an estimator of advantages, for `baseline = "NAME"` in `[refine.policy]`.

    It is asked once for the sessions of a prompt, and once for the branches of each that was forked. Where it
    fails, the sampler ends with its file and line, and goes on with the same groups once it is mended.
    """

    def add(function: Baseline) -> Baseline:
        call = guarded(f"baseline {name}", function)

        def check(rewards: Sequence[float]) -> list[float]:
            found = [float(each) for each in call(rewards)]
            if len(found) != len(rewards) or not all(map(math.isfinite, found)):
                raise PluginError(
                    f"the baseline {name} returned {found} for the rewards {list(rewards)}: return a finite "
                    "advantage for each"
                )
            return found

        BASELINES.add(name, check)
        return function

    return add


def baseline_of(name: str) -> Baseline:
    """Return the baseline that a setting names."""
    match name:
        case "others":
            return above_the_others
        case "group":
            return above_the_mean
    added: Baseline = BASELINES[name]
    return added


def above(reward: float, all_of_them: Sequence[float]) -> float:
    """Return `reward` minus the mean of the others of `all_of_them`, of which it is one; 0 without others."""
    others = len(all_of_them) - 1
    return reward - (sum(all_of_them) - reward) / others if others else 0.0
