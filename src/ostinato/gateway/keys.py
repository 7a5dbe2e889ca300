"""Who is calling. Keys are kept hashed; a checked key is remembered for a few seconds."""

import asyncio
import hashlib
import time
from collections.abc import Mapping

from ostinato.gateway.errors import ApiError
from ostinato.store import ApiKey, Store

REMEMBERED_S = 5.0
MOST_REMEMBERED = 10_000


def hash_key(key: str) -> str:
    """SHA-256 of a key, hexadecimal. Keys are long and random, so no salt and no slow hash."""
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


class KeyRing:
    """Looks keys up in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[float, ApiKey]] = {}

    async def authenticate(self, headers: Mapping[str, str]) -> ApiKey:
        """The caller's key. 401 when it is missing or wrong."""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise _refused("send your API key as 'Authorization: Bearer KEY'")
        return await self._lookup(hash_key(key.strip()))

    async def _lookup(self, digest: str) -> ApiKey:
        now = time.monotonic()
        checked_at, known = self._known.get(digest, (0.0, None))
        if known is not None and now - checked_at < REMEMBERED_S:
            return known
        found = await asyncio.to_thread(self._store.key, digest)
        if found is None:
            self._known.pop(digest, None)
            raise _refused("this API key is not known")
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[digest] = (now, found)
        return found


def _refused(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
