"""The secret that an engine shares with who may ask it: given by environment, never on a command line.

A command line is read by every user of a machine, an environment only by its own.
"""

import hmac
import os
import secrets

ENGINE_SECRET = "OSTINATO_ENGINE_SECRET"  # noqa: S105 - the name of the variable


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def take_secret() -> str:
    """What the parent gave, taken out of the environment so that no child inherits it; empty without."""
    return os.environ.pop(ENGINE_SECRET, "")


def bearer(secret: str) -> dict[str, str]:
    """The headers that show `secret`."""
    return {"Authorization": f"Bearer {secret}"} if secret else {}


def shows(authorization: str, secret: str) -> bool:
    """Whether the header `authorization` shows `secret`; takes as long for a near miss as for a far one."""
    expected = f"Bearer {secret}".encode()
    return hmac.compare_digest(authorization.encode(errors="surrogateescape"), expected)
