"""Small records in the object store: canonical JSON with its SHA-256, refused when one bit differs."""

import hashlib
import json
import logging
from typing import Any

from ostinato.store import AlreadyExists, Missing, Objects
from ostinato.sync.errors import DigestMismatch, NotThere

Body = dict[str, Any]
log = logging.getLogger(__name__)


def digest_of(body: Body) -> str:
    """Return the SHA-256 of the canonical form, 64 hexadecimal digits."""
    return hashlib.sha256(_canonical(body)).hexdigest()


def seal(body: Body) -> bytes:
    return _canonical({"digest": digest_of(body), **body})


def unseal(data: bytes, what: str) -> Body:
    """Return the body that `seal` made `data` of. Raises DigestMismatch naming `what` if a bit differs."""
    return unsealed(data, what)[0]


def unsealed(data: bytes, what: str) -> tuple[Body, str]:
    """Return the result of `unseal` and its digest."""
    try:
        body = json.loads(data)
        claimed = str(body.pop("digest"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise none_such(what, data, error) from error
    if digest_of(body) != claimed or _canonical({"digest": claimed, **body}) != data:
        raise DigestMismatch(what, f"digest {claimed}", digest_of(body))
    return dict(body), claimed


def none_such(what: str, data: bytes, error: Exception) -> DigestMismatch:
    """Return the error for bytes that are not a record of the expected kind."""
    return DigestMismatch(what, "a sealed record", f"{len(data)} bytes that are none ({error})")


def read(objects: Objects, key: str) -> Body:
    """Return the body of a record. Raises NotThere, DigestMismatch."""
    try:
        return unseal(objects.get(key), key)
    except Missing as error:
        raise NotThere(key) from error


def create_once(objects: Objects, key: str, data: bytes) -> None:
    """Create an object whose key determines its bytes.

    Other bytes under the key are damage and are replaced: no reader can have used them.
    """
    try:
        objects.create(key, data)
    except AlreadyExists:
        if objects.get(key) != data:
            log.warning("%s/%s is damaged and is written again", objects.where, key)
            objects.delete(key)
            objects.create(key, data)


def _canonical(body: Body) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
