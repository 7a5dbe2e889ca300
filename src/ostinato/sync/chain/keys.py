"""The keys of objects below a prefix. Objects of one version lie in a folder of that version."""

import re
from collections.abc import Iterable
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


_NUMBERED = re.compile(r"([0-9]{10,})\.json")


def numbers(folder: str, keys: Iterable[str]) -> dict[int, str]:
    """Return the key of each version or epoch among the keys below a folder.

    File managers, editors and people leave other names there, such as `.DS_Store`, `0000000007.json~` or a
    copy: they are no versions, so they are left out.

    >>> numbers("w", ["w/0000000007.json", "w/0000000007.json~", "w/.DS_Store", "w/old/0000000009.json"])
    {7: 'w/0000000007.json'}
    """
    names = {key: _NUMBERED.fullmatch(key.removeprefix(f"{folder}/")) for key in keys}
    found = {int(name[1]): key for key, name in names.items() if name}
    return {number: key for number, key in found.items() if key == f"{folder}/{number:010d}.json"}


def version_of(folder: str, key: str) -> int | None:
    """Return the version in whose folder below `folder` an object lies; None where it lies elsewhere.

    >>> version_of("w/parts", "w/parts/0000000007/9f"), version_of("w/parts", "w/parts/.DS_Store")
    (7, None)
    """
    version = key.removeprefix(f"{folder}/").split("/")
    return int(version[0]) if len(version) == 2 and re.fullmatch("[0-9]{10,}", version[0]) else None
