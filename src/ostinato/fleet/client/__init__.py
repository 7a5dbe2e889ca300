"""Sandboxes on other machines, over the E2B protocol: the client's side, and what both sides share."""

from ostinato.fleet.client.backend import RemoteBackend

__all__ = ["RemoteBackend"]
