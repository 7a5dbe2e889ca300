"""API keys: the caller of each request.

Keys are stored as hashes; a checked key is remembered for seconds.
"""

import asyncio
import time
from collections.abc import Mapping

from ostinato.gateway.errors import ApiError, unavailable
from ostinato.store import KeyChangedError, Store
from ostinato.store.accounts import hash_key
from ostinato.types import ApiKey, Role

REMEMBERED_S = 5.0
"""Seconds for which a revoked key may still send requests.

Nothing is recorded for it: `Store.record` checks.
"""
MOST_REMEMBERED = 10_000


class KeyRing:
    """Looks keys up in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[float, ApiKey]] = {}

    async def authenticate(self, headers: Mapping[str, str], role: Role = Role.USE) -> ApiKey:
        """Return the caller's key, as OpenAI's clients send it or as Anthropic's do.

        Raise ApiError 401 when it is missing or wrong, 403 when it lacks `role`.
        """
        key = await self._lookup(hash_key(_sent(headers)))
        if not key.may(role):
            has = ", ".join(sorted(key.roles))
            raise ApiError(
                403, f"this API key has the roles {has}, not {role.value}: ask for one", code="role_required"
            )
        return key

    def changed(self, key: ApiKey, error: KeyChangedError) -> ApiError:
        """Forget a key that was revoked, or whose consent was withdrawn; return the error to respond with."""
        self._known.pop(key.hash, None)
        if "revoked" in str(error):
            return _refused(str(error))
        return unavailable(str(error), "consent_changed")

    async def _lookup(self, digest: str) -> ApiKey:
        now = time.monotonic()
        checked_at, known = self._known.get(digest, (0.0, None))
        if known is not None and now - checked_at < REMEMBERED_S:
            return known
        key = await asyncio.to_thread(self._store.key, digest)
        if key is None:
            self._known.pop(digest, None)
            raise _refused("this API key is not known")
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[digest] = (now, key)
        return key


def _sent(headers: Mapping[str, str]) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    if key := headers.get("x-api-key", "").strip():
        return key
    raise _refused("send your API key as 'Authorization: Bearer KEY' or 'x-api-key: KEY'")


def _refused(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
