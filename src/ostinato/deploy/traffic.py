"""The traffic of each arm. Every change is one atomic replacement of the arms in the store.

`champion` and `challenger` are roles. Promotion gives the champion's role the challenger's version and
engine, so a user pinned to the champion always gets what was last promoted.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from ostinato.store import Store
from ostinato.types import Arm


class TrafficError(ValueError):
    """The shares do not make sense."""


def split(store: Store, arms: Sequence[Arm]) -> None:
    """Send users to `arms` by their shares, which must add up to 1. Any other arm keeps pinned keys only.

    Raises TrafficError.
    """
    if any(arm.share < 0 for arm in arms) or not math.isclose(sum(arm.share for arm in arms), 1.0):
        shares = ", ".join(f"{arm.name}={arm.share}" for arm in arms)
        raise TrafficError(f"shares must be at least 0 and add up to 1, got {shares}")
    names = {arm.name for arm in arms}
    if len(names) < len(arms):
        raise TrafficError(f"arms need different names, got {', '.join(arm.name for arm in arms)}")
    others = [replace(arm, share=0.0) for arm in store.arms() if arm.name not in names]
    store.set_arms([*arms, *others])


def promote(store: Store, arms: Sequence[Arm]) -> Arm:
    """Send everyone to the challenger's version; `arms` = (champion, challenger). Return the new champion."""
    champion, challenger = arms
    promoted = replace(
        champion, version=challenger.version, engines=challenger.engines, share=1.0, experiment=""
    )
    split(store, (promoted, replace(challenger, share=0.0, experiment="")))
    return promoted


def roll_back(store: Store, arms: Sequence[Arm]) -> Arm:
    """Send everyone back to the champion's version; `arms` = (champion, challenger). Return the champion.

    The challenger's arm points there too, so a pinned key is not left on the version that failed.
    """
    champion, challenger = arms
    restored = replace(champion, share=1.0, experiment="")
    split(store, (restored, replace(restored, name=challenger.name, share=0.0)))
    return restored
