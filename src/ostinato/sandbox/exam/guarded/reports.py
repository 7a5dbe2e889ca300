"""The reports of a suite as the verifier reads them: signed lines that must agree with the plan.

A line that the nonce did not sign, an outcome that was not planned, and a planted test with another outcome
than its own are signs of a forged report.
"""

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ostinato.sandbox.base import SandboxError

MAX_BYTES = 64 * 2**20
MAX_SIGNS = 20
UNFINISHED = "end of the suite"
"""The id of an extra outcome, which fails the exam: the runner ended before it was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedName:
    """One name of the test machinery that has a function of a module which may be an installed library.

    >>> ChangedName(name="inspect.getfile", module="torch.package.package_importer", digest="9f").sign
    'inspect.getfile was changed'
    """

    name: str
    module: str
    digest: str

    @property
    def sign(self) -> str:
        return f"{self.name} was changed"


class SuiteReports:
    """The reader of one run's reports.

    `planted` has the outcome of each kind of planted test. `signs` are the signs of tampering so far, one
    sentence each.
    """

    def __init__(self, nonce: str, order: Sequence[tuple[str, str]], planted: Mapping[str, str]) -> None:
        self._key = bytes.fromhex(nonce)
        self._order = order
        self._planted = planted
        self._buffer = bytearray()
        self._noise = bytearray()
        self._size = self._next = 0
        self.count = 0
        """The number of the next report."""
        self._seen: set[int] = set()
        self._begun = False
        self.done = False
        self.signs: list[str] = []
        self.replacements: set[ChangedName] = set()
        """The changes that are signs too unless an installed library always makes them."""
        self.outcomes: dict[str, str] = {}
        self.notes: list[str] = []
        """Sentences on the tests that could not be collected."""

    def feed(self, data: bytes) -> None:
        """Read more output of the runner. Raises SandboxError when it says that it cannot run."""
        self._size += len(data)
        if self._size > MAX_BYTES:
            self._sign("the suite reported more than its tests could")
            self.done = True
            return
        self._buffer += data
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            if not self.done:
                self._read(bytes(line))

    def begin(self) -> None:
        """Take down that the runner could start, though it may run no test."""
        self._begun = True

    def uncollected(self, where: str, why: str) -> None:
        """Take down that a file could not be collected."""
        self.outcomes[where] = "error"
        self.notes.append(f"{where} was not collected: {why}")

    def finish(self) -> dict[str, str]:
        """Return the outcomes of the run. Raises SandboxError when the runner never began."""
        if not self._begun and not self.signs:
            said = bytes(self._noise + self._buffer).decode(errors="replace").strip()[-300:]
            raise SandboxError(f"the runner of the suite did not start: {said or 'no output'}")
        if not self.done:
            self.outcomes[UNFINISHED] = "error"
        elif left_out := [
            kind
            for place, (test, kind) in enumerate(self._order)
            if kind and test in self.outcomes and place not in self._seen
        ]:
            self._sign(f"a planted test ({left_out[0]}) did not run")
        return self.outcomes

    def _read(self, line: bytes) -> None:
        signature, _, body = line.partition(b" ")
        right = hmac.new(self._key, b"%d %s" % (self.count, body), "sha256").hexdigest().encode()
        if not hmac.compare_digest(signature, right):
            if self._begun:
                self._sign("a report without the right signature")
            else:
                self._noise = (self._noise + line + b"\n")[-4096:]
            return
        self.count += 1
        match json.loads(body):
            case {"void": str(why)}:
                raise SandboxError(why)
            case {"begun": True}:
                self._begun = True
            case {"done": True}:
                self.done = True
            case {"replaced": [str(name), str(module), str(digest)]} if len(self.replacements) < MAX_SIGNS:
                self.replacements.add(ChangedName(name=name, module=module, digest=digest))
            case {"sign": str(sign)}:
                self._sign(sign)
            case {"uncollected": str(where), "why": str(why)}:
                self.uncollected(where, why)
            case {"at": int(place), "outcome": str(outcome)}:
                self._take(place, outcome)
            case _:
                self._sign("a report that the runner never sends")

    def _take(self, place: int, outcome: str) -> None:
        """Take the outcome of a planned test; those before it were not collected."""
        if not self._next <= place < len(self._order):
            self._sign("an outcome that was not planned, or came twice")
            return
        self._next = place + 1
        self._seen.add(place)
        test, kind = self._order[place]
        if not kind:
            self.outcomes[test] = outcome
        elif outcome != self._planted[kind]:
            self._sign(f"a planted test ({kind}) {outcome}, its outcome is {self._planted[kind]}")

    def _sign(self, sign: str) -> None:
        if sign not in self.signs and len(self.signs) < MAX_SIGNS:
            self.signs.append(sign)
