"""Publish an older version's weights again, as the newest one: learning goes on from it when a candidate was
not promoted.

A version is never taken away, so a candidate that failed stays in the chain; the one that goes on follows it,
with the champion as its parent.
"""

import logging
import sys
from collections.abc import Sequence

from ostinato.store import Ledger, Objects, Store
from ostinato.sync import Publisher, Subscriber
from ostinato.train.base import record_of
from ostinato.train.config import RepublishProcess
from ostinato.train.process import Stop, run

log = logging.getLogger(__name__)


def republish(store: Store, objects: Objects, version: int) -> int:
    """Publish the weights of `version` as the next one and record it; return the number that has them now.

    That is the newest number already when it holds the same weights, so it may be done again. Raises
    SyncError when `version` is not there.
    """
    publisher, subscriber = Publisher(objects), Subscriber(objects)
    head = publisher.resume()
    wanted = subscriber.manifest(version)
    if head is None or subscriber.manifest(head).state_root != wanted.state_root:
        head = (version if head is None else head) + 1
        publisher.anchor(head, subscriber.fetch(version), parent=version)
        log.info("version %d has the weights of version %d", head, version)
    Ledger(store).commit(record_of(subscriber.manifest(head), batch=()))
    return head


def main(arguments: Sequence[str] | None = None) -> int:
    """Publish an older version again, as a process; return its exit status."""

    def work(settings: RepublishProcess, _: Stop) -> None:
        republish(Store.open(settings.store), Objects.open(settings.objects), settings.version)

    return run(RepublishProcess, work, arguments, "ostinato.train.republish", __doc__)


if __name__ == "__main__":
    sys.exit(main())
