"""Keeps the end of a command's output in bounded memory."""

from collections import deque

_PART = 1 << 10


class OutputTail:
    """Keeps the last `limit` bytes that are added, and counts the bytes before them.

    >>> tail = OutputTail(4)
    >>> tail.add(b"abcdef")
    >>> tail.text()
    '[2 bytes left out]\\ncdef'
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: deque[bytearray] = deque()
        self._size = 0
        self._dropped = 0

    def add(self, data: bytes) -> None:
        if self._parts and len(self._parts[-1]) + len(data) <= _PART:  # small objects need more memory
            self._parts[-1] += data
        else:
            self._parts.append(bytearray(data))
        self._size += len(data)
        while self._parts and self._size - len(self._parts[0]) >= self._limit:
            first = self._parts.popleft()
            self._size -= len(first)
            self._dropped += len(first)

    def text(self) -> str:
        data = b"".join(self._parts)
        end = data[-self._limit :] if self._limit else b""
        dropped = self._dropped + len(data) - len(end)
        note = f"[{dropped} bytes left out]\n" if dropped else ""
        return note + end.decode(errors="backslashreplace")
