"""What can go wrong between a checkpoint and the engine that serves it."""


class SyncError(Exception):
    """Weights could not be published or fetched; the message says what, where and what to do."""


class Fenced(SyncError):  # noqa: N818
    """Another publisher committed in our place. Stop this one: its weights are not what engines serve."""


class OutOfOrder(SyncError):  # noqa: N818
    """Versions of one prefix follow each other without a gap."""


class UnknownVersion(SyncError):  # noqa: N818
    """No such version was ever published."""


class DigestMismatch(SyncError):  # noqa: N818
    """Something is not what its digest says. Nothing was loaded."""

    def __init__(self, what: str, expected: str, got: str) -> None:
        super().__init__(
            f"{what}: expected {expected}, got {got}; refused, the weights in use stay as they are"
        )
        self.what, self.expected, self.got = what, expected, got
