"""The state of engines and other places, which are asked when a page is read, all at once."""

import http.client
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar
from urllib.parse import urlsplit

from ostinato.dashboard.reading.base import Answer
from ostinato.store import ObjectsError
from ostinato.types import Arm
from ostinato.web.plain import line_of

PATIENCE_S = 2.0
"""The longest time that a page waits for places, all of which are asked at once."""
MOST_AT_ONCE = 16
MOST_BYTES = 64 * 2**10
"""The bytes of an engine's answer that are read."""
T = TypeVar("T")


def asked(places: Sequence[T], ask: Callable[[T], Answer]) -> list[Answer]:
    """Return what `ask` says of each place, with its `trouble`: None, or why there is no answer."""
    if not places:
        return []
    pool = ThreadPoolExecutor(min(MOST_AT_ONCE, len(places)), thread_name_prefix="around")
    futures = [pool.submit(ask, place) for place in places]
    done, _ = wait(futures, PATIENCE_S)
    pool.shutdown(wait=False, cancel_futures=True)
    found = list[Answer]()
    for future in futures:
        if future not in done:
            found.append({"trouble": f"no answer within {PATIENCE_S:g} s"})
            continue
        try:
            found.append({**future.result(), "trouble": None})
        except (OSError, ValueError, ObjectsError, http.client.HTTPException) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or error
            found.append({"trouble": line_of(f"no answer: {why}", 200)})
    return found


def engines_of(arms: Iterable[Arm]) -> dict[str, Answer]:
    """Return the engines of the arms by address: the version that each says it serves, or its trouble."""
    urls = list(dict.fromkeys(url for arm in arms for url in arm.engines))
    answers = asked(urls, _version)
    return {
        url: {"url": line_of(url, 120), "version": None, **answer}
        for url, answer in zip(urls, answers, strict=True)
    }


def _version(url: str) -> Answer:
    """Ask an engine, past any proxy, for the version that it serves; `/healthz` is open to everybody."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/healthz")
        with connection.getresponse() as response:  # it may hold the socket after the connection is closed
            told = json.loads(response.read(MOST_BYTES))
    finally:
        connection.close()
    if response.status != 200 or not isinstance(told, dict) or not isinstance(told.get("version"), int):
        raise ValueError(f"what answers there is no engine of this record (status {response.status})")
    return {"version": told["version"]}
