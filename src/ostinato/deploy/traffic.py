"""The traffic of each arm. Every change reads and replaces the arms of the store in one transaction.

`champion` and `challenger` are roles. Promotion gives the champion's role the challenger's version and
engine, so a user pinned to the champion always gets what was last promoted.
"""

import math
import secrets
from collections.abc import Sequence
from dataclasses import replace

from ostinato.deploy.hold_out import kept
from ostinato.store import Store
from ostinato.types import Arm

BLOCK_H = 4
"""The hours of a block: half a working day, so that most sessions of a block follow one of the same."""


class TrafficError(ValueError):
    """The shares do not make sense."""


def split(store: Store, arms: Sequence[Arm]) -> None:
    """Send users to `arms` by their shares, which must add up to 1. Any other arm keeps pinned keys only.

    Raises TrafficError.
    """
    store.change_arms(lambda present: shared(present, arms))


def put_arm(store: Store, arm: Arm) -> None:
    """Add or replace one arm; the others stay."""
    store.change_arms(lambda present: placed(present, arm))


def point_arm(store: Store, arm: Arm, *urls: str) -> None:
    """Put the arm with engines at `urls`; one that serves this version keeps its share and experiment."""

    def pointed(present: Sequence[Arm]) -> list[Arm]:
        same = (each for each in present if (each.name, each.version) == (arm.name, arm.version))
        return placed(present, replace(next(same, arm), engines=urls))

    store.change_arms(pointed)


def placed(present: Sequence[Arm], arm: Arm) -> list[Arm]:
    """Return the arms with this one in the place of its namesake, or at the end."""
    if all(each.name != arm.name for each in present):
        return [*present, arm]
    return [arm if each.name == arm.name else each for each in present]


def shared(present: Sequence[Arm], arms: Sequence[Arm]) -> list[Arm]:
    """Return all arms of a store that has `present` when users go to `arms` by their shares.

    The first of `arms` is the champion. The shares are of the users outside the hold-out, whose arms stay.
    Raises TrafficError unless the shares add up to 1.
    """
    if any(arm.share < 0 for arm in arms) or not math.isclose(sum(arm.share for arm in arms), 1.0):
        shares = ", ".join(f"{arm.name}={arm.share}" for arm in arms)
        raise TrafficError(f"shares must be at least 0 and add up to 1, got {shares}")
    names = {arm.name for arm in arms}
    if len(names) < len(arms):
        raise TrafficError(f"arms need different names, got {', '.join(arm.name for arm in arms)}")
    return [*arms, *(kept(arm, arms[0]) for arm in present if arm.name not in names)]


def named(name: str, assign: str) -> str:
    """Return the name of an experiment that deals users (`user`), sessions or blocks of hours to its arms.

    The gateway reads the name (`types.release.unit_of`). Where people meet both arms it ends in a secret that
    only the store holds, so that nobody can tell which arm comes next.
    """
    if assign == "user":
        return name
    return f"{name}@{'session' if assign == 'session' else f'{BLOCK_H}h'}.{secrets.token_hex(6)}"


def promoted(arms: Sequence[Arm]) -> tuple[Arm, Arm]:
    """Return both arms after a promotion."""
    champion, challenger = arms
    new = replace(champion, version=challenger.version, engines=challenger.engines, share=1.0, experiment="")
    return new, replace(challenger, share=0.0, experiment="")


def restored(arms: Sequence[Arm]) -> tuple[Arm, Arm]:
    """Return both arms after a roll-back.

    The challenger's arm points to the champion's version too, so a pinned key is not left on the one that
    failed.
    """
    champion, challenger = arms
    old = replace(champion, share=1.0, experiment="")
    return old, replace(old, name=challenger.name, share=0.0)
