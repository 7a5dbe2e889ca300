"""Access control: keys are stored as hashes, and tokens of sandboxes are derived from a secret."""

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ostinato.fleet.server.control import ControlError

PREFIX = "ost_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The SHA-256 of every key that may call, and the secret from which tokens are derived.

    >>> access = Access(hashes=frozenset({hash_key("k")}), secret=b"s")
    >>> access.knows("k"), access.knows("other")
    (True, False)
    """

    hashes: frozenset[str]
    secret: bytes

    def knows(self, key: str) -> bool:
        return hash_key(key) in self.hashes  # a hash is compared: the timing reveals nothing about the key

    def token(self, sandbox: str) -> str:
        """Return the token that gives access to one sandbox's agent and to nothing else."""
        return hmac.new(self.secret, sandbox.encode(), hashlib.sha256).hexdigest()

    def check_control(self, headers: Mapping[str, str]) -> None:
        """Raise ControlError 401 if the headers carry no known key."""
        if not self.knows(_key(headers)):
            raise ControlError(401, "this API key is not known: send yours as 'X-API-Key: KEY'")

    def check_agent(self, headers: Mapping[str, str], sandbox: str) -> None:
        """Raise ControlError 401 if the headers carry neither the sandbox's token nor a known key."""
        token = headers.get("x-access-token", "")
        if not hmac.compare_digest(token.encode(), self.token(sandbox).encode()):
            self.check_control(headers)


def _key(headers: Mapping[str, str]) -> str:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key", "") or (bearer.strip() if scheme.lower() == "bearer" else "")


def hash_key(key: str) -> str:
    """Return the hash of a key. Keys are long and random, so it needs no salt and need not be slow."""
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def new_key() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def open_access(state: Path) -> Access:
    """Read `keys`, one hash a line, and `secret` from a state directory; create them at the first call.

    A first key is created too and left in `key` for this user's own command line.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (state / "secret").exists():
        _write(state / "secret", secrets.token_hex(32))
    if not (state / "keys").exists():
        key = new_key()
        _write(state / "key", key)
        _write(state / "keys", hash_key(key) + "\n")
    hashes = (state / "keys").read_text().split()
    return Access(hashes=frozenset(hashes), secret=(state / "secret").read_text().encode())


def _write(path: Path, text: str) -> None:
    """Write a file that only this user can read, atomically."""
    beside = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:  # noqa: PTH123 - a descriptor with its own mode
        file.write(text)
    beside.replace(path)
