"""Weights from the trainer to the engines: published as anchors and deltas, verified to the bit.

Trainers, engines and the command line come in by the names exported here, and by `mirror.py`.
"""

from ostinato.sync.chain.manifest import Manifest
from ostinato.sync.chain.paths import Cadence
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
from ostinato.sync.quantise import quantised, restored
from ostinato.sync.reader.subscriber import Subscriber
from ostinato.sync.shards import Shard
from ostinato.sync.writer.publisher import Publisher
from ostinato.sync.writer.ranks import RankGroup

__all__ = [
    "Cadence",
    "DigestMismatch",
    "Fenced",
    "RankGroup",
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
    "quantised",
    "restored",
]
