"""The client's side of the E2B protocol: sandboxes on other machines as an ordinary backend.

Only `fleet/choose`, `fleet/command_line` and `fleet/server` may come in.
"""

from ostinato.fleet.client.backend import RemoteBackend

__all__ = ["RemoteBackend"]
