"""The end of a command's output, in bounded memory."""

from collections import deque

_PART = 1 << 10


class Tail:
    """Keeps the last `limit` bytes of what is added, and counts the rest.

    >>> tail = Tail(4)
    >>> tail.add(b"abcdef")
    >>> tail.text()
    '[2 bytes left out]\\ncdef'
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: deque[bytearray] = deque()
        self._kept = 0
        self._dropped = 0

    def add(self, data: bytes) -> None:
        if self._parts and len(self._parts[-1]) + len(data) <= _PART:  # many small ones would weigh more
            self._parts[-1] += data
        else:
            self._parts.append(bytearray(data))
        self._kept += len(data)
        while self._parts and self._kept - len(self._parts[0]) >= self._limit:
            first = self._parts.popleft()
            self._kept -= len(first)
            self._dropped += len(first)

    def text(self) -> str:
        data = b"".join(self._parts)
        kept = data[-self._limit :] if self._limit else b""
        dropped = self._dropped + len(data) - len(kept)
        note = f"[{dropped} bytes left out]\n" if dropped else ""
        return note + kept.decode(errors="replace")
