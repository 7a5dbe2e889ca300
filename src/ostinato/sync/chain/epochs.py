"""The right to publish: each publisher takes the next epoch when it starts, and stops when one is newer."""

import secrets
from dataclasses import asdict, dataclass

from ostinato.store import AlreadyExists, Objects, ObjectsError
from ostinato.sync.chain.keys import Keys, numbers
from ostinato.sync.chain.sealed import none_such, read, seal
from ostinato.sync.errors import Fenced, NotThere


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """The token of one publisher, created once and never removed.

    >>> Epoch(number=1, run="5e", job="c0").number
    1
    """

    number: int
    run: str
    """The id of the run, the same in all epochs of a prefix: manifests of another run have another id."""
    job: str
    """A random text, so that two publishers never write equal tokens; the ranks of one publisher share it."""


def claim(objects: Objects, keys: Keys, job: str) -> Epoch:
    """Take the next epoch: from now on every earlier publisher is fenced. Raises ObjectsError."""
    while True:
        newest = newest_epoch(objects, keys)
        number = 1 if newest is None else newest.number + 1
        run = secrets.token_hex(8) if newest is None else newest.run
        epoch = Epoch(number=number, run=run, job=job)
        if _created(objects, keys, epoch):
            return epoch


def _created(objects: Objects, keys: Keys, epoch: Epoch) -> bool:
    """Try to create the token, and return whether the stored token, which alone counts, is `epoch`."""
    try:
        objects.create(keys.epoch(epoch.number), seal(asdict(epoch)))
    except AlreadyExists:
        pass
    except ObjectsError as error:
        try:
            return read_epoch(objects, keys, epoch.number) == epoch
        except (NotThere, ObjectsError):
            raise error from None
    return read_epoch(objects, keys, epoch.number) == epoch


def newest_epoch(objects: Objects, keys: Keys) -> Epoch | None:
    taken = numbers(keys.epochs, objects.list(keys.epochs))
    return read_epoch(objects, keys, max(taken)) if taken else None


def read_epoch(objects: Objects, keys: Keys, number: int) -> Epoch:
    """Return the token of an epoch. Raises NotThere, DigestMismatch."""
    key = keys.epoch(number)
    body = read(objects, key)
    try:
        return Epoch(**body)
    except TypeError as error:
        raise none_such(key, b"", error) from error


def check_newest(objects: Objects, keys: Keys, epoch: Epoch) -> None:
    """Raise Fenced once another publisher has taken a later epoch."""
    if objects.exists(keys.epoch(epoch.number + 1)):
        raise Fenced(
            f"{objects.where}/{keys.prefix}: another publisher took epoch {epoch.number + 1}: stop this one"
        )
