"""The front: the one admitted candidate that waits for its turn with people.

It is read from the record: what cycles left in the run folder, and the log. The newest candidate that was
trained on the champion waits; every other one is superseded, and its sessions can be learnt from again.
"""

from ostinato.deploy.control import CycleControl
from ostinato.deploy.late import promotions
from ostinato.loop.base import Resources
from ostinato.loop.results import Cycled, OpenedTrial
from ostinato.store import Ledger, Store
from ostinato.store.cycle_log import CycleAction, cycle_log
from ostinato.types import Decision


def standing(store: Store, first: int) -> int:
    """Return the champion: the newest promotion that was not put back, else the `first` version."""
    chain = [each for each in promotions(store) if not each.put_back]
    return chain[-1].version if chain else first


def cycle_name(number: int) -> str:
    return f"cycle-{number}"


def trial_name(candidate: int) -> str:
    return f"trial-of-{candidate}"


class Front:
    """The candidates of the cycles of a run; `first` is the version that its first cycle began with."""

    def __init__(self, resources: Resources, first: int) -> None:
        self._resources = resources
        self._first = first

    @property
    def champion(self) -> int:
        return standing(self._resources.store, self._first)

    def cycles(self) -> dict[str, Cycled]:
        """Return the cycles that are done, by name, in their order."""
        found: dict[str, Cycled] = {}
        while (done := self._resources.run.result(name := cycle_name(len(found) + 1), Cycled)) is not None:
            found[name] = done
        return found

    def trials(self) -> list[str]:
        """Return the names of the trials that candidates of these cycles have, or may come to."""
        return [trial_name(cycle.candidate) for cycle in self.cycles().values() if cycle.judged is not None]

    def settle(self) -> Cycled | None:
        """Return the cycle whose candidate is next, None for none; supersede every other one that waits."""
        champion, waiting = self.champion, self._waiting()
        newest = next(reversed(waiting), None)
        for name, cycle in waiting.items():
            if cycle.base.champion != champion:
                self._supersede(name, cycle, f"version {champion} is the champion now")
            elif name != newest:
                self._supersede(name, cycle, f"{newest} has a newer candidate")
        last = None if newest is None else waiting[newest]
        return last if last is not None and last.base.champion == champion else None

    def _waiting(self) -> dict[str, Cycled]:
        log = cycle_log(self._resources.store)
        superseded = {entry.cycle for entry in log if entry.action is CycleAction.SUPERSEDED}
        return {
            name: cycle
            for name, cycle in self.cycles().items()
            if cycle.decision is Decision.ADMIT
            and name not in superseded
            and self._resources.run.result(f"{trial_name(cycle.candidate)}/opened", OpenedTrial) is None
        }

    def _supersede(self, name: str, cycle: Cycled, reason: str) -> None:
        """Give the sessions of a candidate back, and say so; a kill in between does both again."""
        store = self._resources.store
        sessions = Ledger(store).give_back(cycle.candidate, cycle.base.version)
        said = f"version {cycle.candidate} is superseded: {reason}"
        CycleControl(store, name).log_once(CycleAction.SUPERSEDED, said)
        self._resources.show.say(f"{said}; {sessions} sessions can be learnt from again")
