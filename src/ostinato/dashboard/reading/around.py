"""What the record does not hold and a running site does: sandbox nodes, and the weights of each region."""

import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from ostinato.dashboard.reading.base import Answer, NodeAddress, Region
from ostinato.dashboard.text.plain import line_of
from ostinato.store import Objects, ObjectsError
from ostinato.sync import Subscriber, SyncError

PATIENCE_S = 2.0
"""The longest time that a page waits for nodes and regions, all of which are asked at once."""
MOST_BYTES = 4 * 2**20
MOST_AT_ONCE = 16
T = TypeVar("T", NodeAddress, Region)


def nodes_seen(nodes: Sequence[NodeAddress]) -> list[Answer]:
    """Return what each node says of itself: its sandboxes by state, its size and load; or why it does not."""
    return _asked(nodes, _node)


def regions_seen(regions: Sequence[Region], newest: int | None) -> list[Answer]:
    """Return the newest version that each region has whole, and how many it is behind the record."""
    return [
        {**row, "lag": None if newest is None or row["head"] is None else max(0, newest - row["head"])}
        for row in _asked(regions, _region)
    ]


def _asked(places: Sequence[T], ask: Callable[[T], Answer]) -> list[Answer]:
    """Ask all places at once; one that is silent for too long has a trouble instead of an answer."""
    if not places:
        return []
    pool = ThreadPoolExecutor(min(MOST_AT_ONCE, len(places)), thread_name_prefix="around")
    asked = [pool.submit(ask, place) for place in places]
    wait(asked, PATIENCE_S)
    pool.shutdown(wait=False, cancel_futures=True)
    return [_answer(place, future) for place, future in zip(places, asked, strict=True)]


def _answer(place: NodeAddress | Region, future: Future[Answer]) -> Answer:
    trouble = None
    try:
        found = future.result(timeout=0)
    except (OSError, ValueError, KeyError, TypeError, IndexError, ObjectsError, SyncError) as error:
        found, trouble = {"head": None}, f"no answer: {getattr(error, 'reason', error)}"
    except (TimeoutError, CancelledError):
        found, trouble = {"head": None}, f"no answer within {PATIENCE_S:.0f} s"
    return {**place.shown, **found, "trouble": None if trouble is None else line_of(trouble, 200)}


def _node(node: NodeAddress) -> Answer:
    # The operator names the addresses, and the command line takes none but http.
    request = urllib.request.Request(f"{node.url.rstrip('/')}/node", headers={"x-api-key": node.key})  # noqa: S310
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:  # noqa: S310
            report = json.loads(response.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection
            raise OSError(f"status {error.code}, {error.reason}") from None
    return _facts(report, time.monotonic() - began)


def _facts(report: dict[str, Any], answered_s: float) -> Answer:
    states = Counter(line_of(str(each["state"]), 20) for each in report["pods"])
    cores, memory_mb = report["capacity"][:2]
    return {
        "name": line_of(str(report["name"]), 60),
        "backend": line_of(str(report["backend"]), 30),
        "sandboxes": len(report["pods"]),
        "states": [{"state": state, "count": count} for state, count in sorted(states.items())],
        "oldest_s": max((float(each["age_s"]) for each in report["pods"]), default=None),
        "templates": len(report["templates"]),
        "cores": float(cores) / 1000,
        "memory_mb": int(memory_mb),
        "cpu": float(report["pressure"]["cpu"]),
        "memory": float(report["pressure"]["memory"]),
        "answered_s": answered_s,
    }


def _region(region: Region) -> Answer:
    return {"head": Subscriber(Objects.open(region.objects), region.prefix).head()}
