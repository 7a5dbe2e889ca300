"""The arms: a salted hash of the user, against the arms' shares, decides which version a user meets.

An experiment may deal sessions or blocks of hours in place of users; a session keeps the arm it began on.
"""

import asyncio
import hashlib
import time
from collections.abc import Sequence

from ostinato.gateway.errors import unavailable
from ostinato.store import Store
from ostinato.types import Arm, Session
from ostinato.types.release import HOLD_OUT, unit_of

POLL_S = 0.25
BUCKETS = 2**64


def bucket(user: str, salt: str) -> float:
    """Return a user's fixed number in [0, 1), uniform over users and independent between salts."""
    hashed = hashlib.blake2b(user.encode(), key=salt.encode()[:64], digest_size=8)
    return int.from_bytes(hashed.digest()) / BUCKETS


def assign(user: str, arms: Sequence[Arm], salt: str, *, session: str = "", at: float = 0.0) -> Arm:
    """Return the arm of `user`, by two independent hashes: one enrols, the other deals.

    Where the experiment deals sessions or blocks of hours, the hashes are of the unit that `session`, which
    begins `at`, belongs to.

    The oldest version is the base. A user is enrolled in the experiment when their first hash lies below
    the share of all newer arms together. The second hash deals the enrolled users to those arms, which lie
    side by side in the order of their names. So widening the experiment as a whole never moves a user who is
    in it, and being enrolled says nothing about which arm a user meets. The experiments of the arms are part
    of the salt too: users who met a challenger in one trial are as likely as others to meet the next one.

    Users of the hold-out are decided before all that, by hashes of their own that no experiment salts.

    The same unit, shares, experiment and salt always give the same arm. Raise ValueError when no arm has a
    share.
    """
    sharing = sorted((arm for arm in arms if arm.share > 0), key=lambda arm: (arm.version, arm.name))
    frozen = sorted((arm for arm in sharing if arm.experiment == HOLD_OUT), key=lambda arm: arm.name)
    sharing = [arm for arm in sharing if arm.experiment != HOLD_OUT]
    held_out = sum(arm.share for arm in frozen)
    if frozen and bucket(user, f"{salt}/hold-out") < held_out:
        return _deal(bucket(user, f"{salt}/hold-out/arm") * held_out, frozen)
    if not sharing:
        raise ValueError("no arm has a share of the traffic")
    base, *others = sharing
    experiments = sorted({arm.experiment for arm in sharing if arm.experiment})
    salt, unit = "/".join([salt, *experiments]), unit_of("".join(experiments[-1:]), user, session, at)
    total, tried = sum(arm.share for arm in sharing), sum(arm.share for arm in others)
    if bucket(unit, f"{salt}/enrolment") * total >= tried:
        return base
    return _deal(bucket(unit, f"{salt}/arm") * tried, sorted(others, key=lambda arm: arm.name))


def _deal(place: float, arms: Sequence[Arm]) -> Arm:
    edge = 0.0
    for arm in arms:
        edge += arm.share
        if place < edge:
            return arm
    return arms[-1]


class ArmTable:
    """The arms of the store, read again at most every POLL_S seconds and only when they changed."""

    def __init__(self, store: Store, salt: str) -> None:
        self._store = store
        self._salt = salt
        self._arms: dict[str, Arm] = {}
        self._revision: int | None = None
        self._looked_at = -POLL_S
        self._looking = asyncio.Lock()

    async def refresh(self) -> None:
        if self._is_fresh():
            return
        async with self._looking:
            if self._is_fresh():
                return
            revision = await asyncio.to_thread(self._store.arms_revision)
            if revision != self._revision:
                arms = await asyncio.to_thread(self._store.arms)
                self._arms = {arm.name: arm for arm in arms}
                self._revision = revision
            self._looked_at = time.monotonic()

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._looked_at < POLL_S

    def all(self) -> list[Arm]:
        return list(self._arms.values())

    def get(self, name: str) -> Arm | None:
        return self._arms.get(name)

    def choose(self, user: str, pinned: str | None, session: Session | None = None) -> Arm:
        """Return the pinned arm, or the one of the user, or of what `session` belongs to, by hash.

        Raise ApiError 503 when there is none to choose.
        """
        if pinned is not None:
            arm = self._arms.get(pinned)
            if arm is None:
                raise unavailable(f"the key is pinned to arm {pinned!r}, which does not exist", "no_arm")
            return arm
        try:
            about = ("", 0.0) if session is None else (session.id, session.started_at)
            return assign(user, self.all(), self._salt, session=about[0], at=about[1])
        except ValueError as error:
            raise unavailable(f"{error}: set arms in the store", "no_arm") from None
