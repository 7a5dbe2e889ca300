"""Weights from the trainer to the engines: published as anchors and deltas, verified to the bit."""

from ostinato.sync.errors import DigestMismatch, Fenced, OutOfOrder, SyncError, UnknownVersion
from ostinato.sync.manifest import Manifest
from ostinato.sync.publisher import Publisher
from ostinato.sync.subscriber import Subscriber

__all__ = [
    "DigestMismatch",
    "Fenced",
    "Manifest",
    "OutOfOrder",
    "Publisher",
    "Subscriber",
    "SyncError",
    "UnknownVersion",
]
