"""Weights from the trainer to the engines: published as anchors and deltas, verified to the bit."""

from ostinato.sync.collect import collect
from ostinato.sync.errors import (
    DigestMismatch,
    Fenced,
    OtherArchitecture,
    OutOfOrder,
    Overtaken,
    SyncError,
    UnknownVersion,
)
from ostinato.sync.manifest import Manifest
from ostinato.sync.paths import Cadence
from ostinato.sync.publisher import Publisher
from ostinato.sync.ranks import Group
from ostinato.sync.shards import Shard
from ostinato.sync.subscriber import Subscriber

__all__ = [
    "Cadence",
    "DigestMismatch",
    "Fenced",
    "Group",
    "Manifest",
    "OtherArchitecture",
    "OutOfOrder",
    "Overtaken",
    "Publisher",
    "Shard",
    "Subscriber",
    "SyncError",
    "UnknownVersion",
    "collect",
]
