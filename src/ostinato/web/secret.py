"""The secret that an engine shares with its callers, passed in the environment and never on a command line.

Every user of a machine can read a command line, but only their own environment.
"""

import hmac
import os
import secrets

ENGINE_SECRET = "OSTINATO_ENGINE_SECRET"  # noqa: S105 - the name of the variable


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def take_secret() -> str:
    """Return the secret, or an empty text, and remove it from the environment of later child processes."""
    return os.environ.pop(ENGINE_SECRET, "")


def bearer(secret: str) -> dict[str, str]:
    """Return the headers that carry `secret`."""
    return {"Authorization": f"Bearer {secret}"} if secret else {}


def shows(authorization: str, secret: str) -> bool:
    """Return True when the header `authorization` carries `secret`, in a time that does not depend on it."""
    expected = f"Bearer {secret}".encode()
    return hmac.compare_digest(authorization.encode(errors="surrogateescape"), expected)
