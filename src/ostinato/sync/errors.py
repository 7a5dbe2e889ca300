"""What can go wrong between a checkpoint and the engine that serves it."""


class SyncError(Exception):
    """Weights could not be published or fetched; the message says what, where and what to do."""


class Fenced(SyncError):  # noqa: N818
    """A newer publisher has taken over. Stop this one for good: its weights are not what engines serve."""


class Overtaken(SyncError):  # noqa: N818
    """Somebody else committed this version with other weights: `resume` and go on from those."""


class OutOfOrder(SyncError):  # noqa: N818
    """Versions of one prefix follow each other without a gap."""


class UnknownVersion(SyncError):  # noqa: N818
    """No such version was ever published, or it was collected."""


class OtherArchitecture(SyncError):  # noqa: N818
    """These are the weights of another model: other tensors, shapes or dtypes. Nothing was loaded."""


class DigestMismatch(SyncError):  # noqa: N818
    """Something is not what its digest says. Nothing was loaded."""

    def __init__(self, what: str, expected: str, got: str) -> None:
        super().__init__(
            f"{what}: expected {expected}, got {got}; refused, the weights in use stay as they are"
        )
        self.what, self.expected, self.got = what, expected, got


class NotThere(DigestMismatch):
    """An object that a manifest names is missing: deleted, or not copied to this region."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "an object", "nothing")


def expect(what: str, expected: str, got: str) -> None:
    """Raises DigestMismatch unless the two are equal."""
    if expected != got:
        raise DigestMismatch(what, expected, got)
