"""Publish an older version's weights again, as the newest one: what learning goes on from when a candidate
was not promoted.

A version is never taken away, so a candidate that failed stays in the chain; the one that goes on follows it,
with the champion as its parent.
"""

import argparse
import logging
import sys
from collections.abc import Sequence

from ostinato.store import Ledger, Objects, ObjectsError, Store, StoreError
from ostinato.sync import Publisher, Subscriber, SyncError
from ostinato.train.learner import version_row

log = logging.getLogger(__name__)


def put_back(store: Store, objects: Objects, version: int) -> int:
    """Publishes the weights of `version` as the next one and records it; gives the number that has them now.

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
    Ledger(store).commit(version_row(subscriber.manifest(head), batch=()))
    return head


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ostinato.train.put_back", description=__doc__)
    parser.add_argument("--store", required=True, help="SQLite file or SQLAlchemy URL")
    parser.add_argument("--objects", required=True, help="folder or URL of the object store")
    parser.add_argument("--version", required=True, type=int, help="whose weights become the newest")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        put_back(Store.open(options.store), Objects.open(options.objects), options.version)
    except (StoreError, ObjectsError, SyncError) as error:
        log.error("version %d was not put back: %s", options.version, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
