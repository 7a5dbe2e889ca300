"""The errors between a checkpoint and the engine that serves it."""


class SyncError(Exception):
    """Weights could not be published or fetched; the message says what, where and what to do."""


class Fenced(SyncError):  # noqa: N818
    """A newer publisher has taken over. Stop this one for good: engines do not serve its weights."""


class Overtaken(SyncError):  # noqa: N818
    """Another publisher committed this version with other weights: `resume` and go on from those."""


class OutOfOrder(SyncError):  # noqa: N818
    """The version does not follow the last one: versions of one prefix have no gaps."""


class UnknownVersion(SyncError):  # noqa: N818
    """The version was never published, or it was collected."""


class OtherArchitecture(SyncError):  # noqa: N818
    """The weights are those of another model: other tensors, shapes or dtypes. Nothing was loaded."""


class DigestMismatch(SyncError):  # noqa: N818
    """An object or a tensor does not have its digest. Nothing was loaded."""

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
    """Raise DigestMismatch unless the two are equal."""
    if expected != got:
        raise DigestMismatch(what, expected, got)
