"""The keys of objects below a prefix. Objects of one version lie in a folder of that version."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one prefix.

    >>> Keys("weights").manifest(7)
    'weights/versions/0000000007.json'
    """

    prefix: str

    @property
    def versions(self) -> str:
        return f"{self.prefix}/versions"

    def manifest(self, version: int) -> str:
        """Return the key of a version's manifest: the publisher that creates it has committed the version."""
        return f"{self.versions}/{version:010d}.json"

    def parts(self, version: int) -> str:
        return f"{self.prefix}/parts/{version:010d}"

    def part(self, version: int, sha256: str) -> str:
        return f"{self.parts(version)}/{sha256}"

    def patch(self, version: int, digest: str) -> str:
        """Return the key of another way to a version, beside the one in its manifest."""
        return f"{self.prefix}/ways/{version:010d}/{digest}.json"

    def share(self, version: int, epoch: int, rank: int) -> str:
        """Return the key of the patches that one rank contributes to a version."""
        return f"{self.prefix}/shares/{version:010d}/{epoch}-{rank}.json"

    @property
    def collectable(self) -> tuple[str, ...]:
        """Return the folders of objects that are not needed for ever; each has a folder for each version."""
        return (f"{self.prefix}/parts", f"{self.prefix}/ways", f"{self.prefix}/shares")

    @property
    def epochs(self) -> str:
        return f"{self.prefix}/epochs"

    def epoch(self, number: int) -> str:
        return f"{self.epochs}/{number:010d}.json"

    @property
    def leases(self) -> str:
        return f"{self.prefix}/leases"

    def lease(self, holder: str) -> str:
        return f"{self.leases}/{holder}.json"

    @property
    def horizons(self) -> str:
        return f"{self.prefix}/horizons"

    def horizon(self, version: int) -> str:
        """Return the key that says that versions before this one were given up.

        A reader without a lease on one of those cannot rely on it.
        """
        return f"{self.horizons}/{version:010d}.json"


def number_of(key: str) -> int:
    """Return the version or epoch that `…/0000000007.json` stands for."""
    return int(key.rpartition("/")[2].removesuffix(".json"))


def version_of(key: str) -> int:
    """Return the version in whose folder an object lies: 7 for `…/0000000007/9f`."""
    return int(key.split("/")[-2])
