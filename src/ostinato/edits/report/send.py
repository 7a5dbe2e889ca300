"""Delivery of the journal to the gateway, in order; lines that it acknowledged are never sent again.

Ids make a repetition harmless. When the gateway is away, or refuses the key, the rest waits for the next
delivery. A line that it refuses is counted and skipped, so that it cannot block the others.
"""

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from ostinato.edits.report.journal import EventJournal, JournalEntry, JournalLine
from ostinato.web.joined import Joined

BATCH = 500
TIMEOUT_S = 10.0
OK = range(200, 300)
WAIT = frozenset({401, 408, 425, 429}) | frozenset(range(500, 600))
FORBIDDEN, NO_ROLE = http.client.FORBIDDEN, "role_required"
EVENTS, FEEDBACK = "/v1/events", "/feedback"


class GatewayAwayError(Exception):
    """The error for a gateway that does not accept lines now; the message holds its own words."""


class EventSink(Protocol):
    """A connection to a gateway."""

    def post(self, path: str, body: bytes, kind: str) -> tuple[int, bytes]:
        """Send a body; return the status and body of the response.

        Raise GatewayAwayError without a response.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The result of a delivery.

    >>> Sent(taken=3, refused=0, waiting="").taken
    3
    """

    taken: int
    refused: int
    waiting: str
    """The reason why the rest waits; empty when nothing waits."""
    reason: str = ""
    """The reason why the first refused line was refused; empty when none was."""


class HttpEventSink:
    """A gateway over HTTP."""

    def __init__(self, settings: Joined) -> None:
        self._address = urlsplit(settings.url)
        self._key = settings.key
        if self._address.scheme not in ("http", "https") or not self._address.hostname:
            raise GatewayAwayError(f"{settings.url!r} is no http address: set OSTINATO_URL")

    def post(self, path: str, body: bytes, kind: str) -> tuple[int, bytes]:
        secure = self._address.scheme == "https"
        connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = connect(self._address.hostname or "", self._address.port, timeout=TIMEOUT_S)
        headers = {"authorization": f"Bearer {self._key}", "content-type": kind}
        try:
            connection.request("POST", self._address.path.rstrip("/") + path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise GatewayAwayError(f"{self._address.netloc}: {error or type(error).__name__}") from error
        finally:
            connection.close()


def deliver(journal: EventJournal, gateway: EventSink) -> Sent:
    """Send the lines that were not sent yet."""
    taken, reasons = 0, list[str]()
    try:
        while batch := _batch(journal):
            entries = [line.entry for line in batch if line.entry]
            wrong = _post(gateway, entries)
            taken, reasons = taken + len(entries) - len(wrong), reasons + wrong
            journal.acknowledge(batch[-1].end)
    except GatewayAwayError as away:
        return _sent(taken, reasons, str(away))
    journal.turn_over()
    return _sent(taken, reasons, "")


def _sent(taken: int, reasons: Sequence[str], waiting: str) -> Sent:
    reason = reasons[0] if reasons else ""
    return Sent(taken=taken, refused=len(reasons), waiting=waiting, reason=reason)


def _batch(journal: EventJournal) -> list[JournalLine]:
    """Return the next lines of one request: up to BATCH events, or one signal."""
    batch: list[JournalLine] = []
    for line in journal.read(journal.sent()):
        if line.entry is not None and "kind" in line.entry:
            return batch or [line]
        batch.append(line)
        if len(batch) == BATCH:
            break
    return batch


def _post(gateway: EventSink, entries: Sequence[JournalEntry]) -> list[str]:
    """Send entries; return a reason for each refused one.

    Raise GatewayAwayError when none are accepted now.
    """
    if not entries:
        return []
    signal = "kind" in entries[0]
    path = FEEDBACK if signal else EVENTS
    lines = [json.dumps(entry) for entry in entries]
    kind = "application/json" if signal else "application/x-ndjson"
    status, answer = gateway.post(path, "\n".join(lines).encode(), kind)
    if status == http.client.REQUEST_ENTITY_TOO_LARGE and len(entries) > 1:
        half = len(entries) // 2
        return _post(gateway, entries[:half]) + _post(gateway, entries[half:])
    if status in OK:
        return _errors(answer)
    said = f"{path} answered {status}: {_message(answer)}"
    if _may_work_later(status, answer) or (status == http.client.NOT_FOUND and not signal):
        raise GatewayAwayError(said)
    return [said] * len(entries)


def _may_work_later(status: int, answer: bytes) -> bool:
    """Return whether a refusal may end, as when a key is given the role that it lacks."""
    return status in WAIT or (status == FORBIDDEN and NO_ROLE in answer.decode(errors="replace"))


def _errors(answer: bytes) -> list[str]:
    """Return the reasons for the lines that a gateway refused while it accepted others."""
    reply = _read(answer)
    errors = reply.get("errors") if isinstance(reply, dict) else None
    listed = errors if isinstance(errors, list) else []
    return [
        str(one.get("message", "no reason given")) if isinstance(one, dict) else str(one) for one in listed
    ]


def _message(answer: bytes) -> str:
    """Return why a gateway refused a request, on one line."""
    reply = _read(answer)
    error = reply.get("error") if isinstance(reply, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return " ".join(str(message or answer.decode(errors="replace")).split())[:300] or "without a word"


def _read(answer: bytes) -> object:
    """Return the body as JSON; None when it is none."""
    try:
        return json.loads(answer)
    except ValueError:
        return None
