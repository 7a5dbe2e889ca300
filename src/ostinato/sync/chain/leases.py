"""Leases: a reader notes the version that it fetches or may return to, and collecting keeps its objects."""

import logging
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from ostinato.store import Missing, Objects, ObjectsError
from ostinato.sync.chain.keys import Keys, numbers
from ostinato.sync.chain.sealed import create_once, none_such, seal, unseal

log = logging.getLogger(__name__)
LEASE_S = 3600.0
"""A reader that died is forgotten after this long; clocks may be a minute apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The version that one reader needs, and the one that it holds.

    >>> Lease(version=9, holding=4, until=1.8e9).holding
    4
    """

    version: int
    holding: int | None
    until: float
    """Seconds since 1970."""


@contextmanager
def lease(objects: Objects, keys: Keys, version: int, holding: int | None) -> Iterator[bool]:
    """Hold a lease: meanwhile `version` can be reached, from `holding` or from nothing.

    Yield True when that is certain, False when the version was given up before and may be gone. The lease is
    written before the horizon is read; the collector moves the horizon before it reads leases. So at least
    one of the two sees the other.
    """
    key = keys.lease(secrets.token_hex(8))
    record = Lease(version=version, holding=holding, until=time.time() + LEASE_S)
    objects.create(key, seal(asdict(record)))
    try:
        yield version >= horizon(objects, keys)
    finally:
        try:
            objects.delete(key)
        except ObjectsError as error:
            log.warning("a lease is left to run out: %s", error)


def leases(objects: Objects, keys: Keys) -> list[Lease]:
    """Return the leases that are held; those that ran out are removed. Raises DigestMismatch."""
    valid = []
    for key in objects.list(keys.leases):
        if not re.fullmatch(r"[0-9a-f]{16}\.json", key.removeprefix(f"{keys.leases}/")):
            continue  # no name that `lease` gives: left by another program or a person
        try:
            data = objects.get(key)
        except Missing:
            continue  # released since the listing
        try:
            held = Lease(**unseal(data, key))
        except TypeError as error:
            raise none_such(key, data, error) from error
        if held.until < time.time():
            objects.delete(key)
        else:
            valid.append(held)
    return valid


def horizon(objects: Objects, keys: Keys) -> int:
    """Return the oldest version that was not given up."""
    return max(numbers(keys.horizons, objects.list(keys.horizons)), default=0)


def give_up(objects: Objects, keys: Keys, version: int) -> None:
    """Give up all versions before `version`, for good."""
    given_up = numbers(keys.horizons, objects.list(keys.horizons))
    if max(given_up, default=0) < version:
        create_once(objects, keys.horizon(version), b"")
    for number, key in given_up.items():
        if number < version:
            objects.delete(key)
