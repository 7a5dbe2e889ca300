"""The reporter: a process that an event starts, and that ends when it has nothing left to wait for.

::

    while the inbox has events or a window of the next 15 minutes is open:
        take the events in ─► observe each edit ─► journal ─► gateway

A lock lets one run for each repository. Windows after 15 minutes, and those that a reboot cut off, are
measured when the next event starts another reporter.
"""

import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

from ostinato.edits.attribution import trace
from ostinato.edits.capture import snapshots, spool
from ostinato.edits.capture.repository_paths import RepositoryPaths, find_repository, is_enabled, state_of
from ostinato.edits.follow.edit import FollowedEdit, close, live, opened, save
from ostinato.edits.follow.windows import LIVE_S, Clock, SystemClock, finished, next_due
from ostinato.edits.report.entries import Hasher
from ostinato.edits.report.ingest import Ingest
from ostinato.edits.report.journal import EventJournal
from ostinato.edits.report.observe import RepositoryView, observe
from ostinato.edits.report.send import EventSink, GatewayAwayError, HttpEventSink, Sent, deliver
from ostinato.web.joined import Joined, JoinedError, joined

POLL_S = 0.5
RETRY_S = 60.0
BAD = "bad"
STALE_S = 86_400.0


@dataclass(slots=True)
class ReporterProgress:
    """The progress of one reporter: the next window, and the last delivery."""

    next_due: float | None = None
    retry_at: float = 0.0
    sent: Sent = Sent(taken=0, refused=0, waiting="")  # noqa: RUF009


class EditReporter:
    """Follows the edits of one repository and reports on them."""

    def __init__(
        self, repo: RepositoryPaths, clock: Clock, config: Joined, gateway: EventSink | None = None
    ) -> None:
        self._repo = repo
        self._clock = clock
        self._state = Path(state_of(repo))
        self._gateway = gateway
        self._progress = ReporterProgress()
        self.journal = EventJournal(self._state)
        self._ingest = Ingest(self._state, self.journal, Hasher(self._state), with_text=config.content)

    def run(self) -> None:
        """Run until the inbox is empty and no window is near."""
        while is_enabled(str(self._state)):
            due_at = self.tick()
            if due_at is None and not spool.waiting(str(self._state)):
                break
            wait = due_at - self._clock.now() if due_at else 0.0
            self._clock.sleep(min(POLL_S, wait) if wait > 0 else POLL_S)
        self._tidy()

    def tick(self) -> float | None:
        """Do what is due now; return when the next window opens, None when none is near."""
        events = self._take_in()
        now = self._clock.now()
        if events or self._progress.next_due is None or self._progress.next_due <= now:
            waiting = [next_due(edit) for edit in self._observe_all(now)]
            coming = [at for at in waiting if at is not None and at <= now + LIVE_S]
            self._progress = replace(self._progress, next_due=min(coming, default=None))
        self._send(now)
        return self._progress.next_due

    def _take_in(self) -> int:
        paths = spool.waiting(str(self._state))
        for path in paths:
            try:
                self._ingest.take(path)
            except Exception:
                bad = self._state / BAD
                bad.mkdir(exist_ok=True)
                Path(path).replace(bad / Path(path).name)
                spool.complain(str(self._state), traceback.format_exc())
        return len(paths)

    def _observe_all(self, now: float) -> list[FollowedEdit]:
        """Observe every edit; return those that are still followed."""
        edits = opened(self._state)
        view, followed = RepositoryView(edits=edits), []
        for edit in edits:
            observation = observe(edit, now, view)
            self.journal.append(observation.entries)
            for record in observation.traces:
                trace.append(self._state, record)
            if finished(observation.edit) or not live(observation.edit):
                close(self._state, edit.id)
                continue
            if observation.edit != edit:
                save(self._state, observation.edit)
            followed.append(observation.edit)
        return followed

    def _send(self, now: float) -> None:
        if self._gateway is None or now < self._progress.retry_at:
            return
        sent = deliver(self.journal, self._gateway)
        self._progress = replace(self._progress, sent=sent, retry_at=now + RETRY_S if sent.waiting else 0.0)
        if sent.refused:
            spool.complain(
                str(self._state), f"gateway: refused {sent.refused}, the first because {sent.reason}"
            )
        if sent.waiting:
            spool.complain(str(self._state), f"gateway: the rest waits: {sent.waiting}")

    def _tidy(self) -> None:
        """Delete calls that never ended, and trees that are no longer needed."""
        pending = list((self._state / spool.PENDING).glob("*.json"))
        for path in pending:
            if self._clock.now() - path.stat().st_mtime > STALE_S:
                path.unlink(missing_ok=True)
        if not pending:
            snapshots.clear(self._repo)


def open_reporter(repo: RepositoryPaths, clock: Clock) -> EditReporter:
    """Return a reporter with the settings of this user. Raise JoinedError."""
    config = joined()
    try:
        gateway = HttpEventSink(config) if config.url else None
    except GatewayAwayError as error:
        raise JoinedError(str(error)) from error
    return EditReporter(repo, clock, config, gateway)


def report(repo: RepositoryPaths, clock: Clock) -> bool:
    """Run a reporter; return False if another one runs. An event that arrives as it ends is taken in too."""
    state = state_of(repo)
    while True:
        with spool.ReporterLock(state) as is_free:
            if not is_free:
                return False
            open_reporter(repo, clock).run()
        if not spool.waiting(state) or not is_enabled(state):
            return True


def main(arguments: list[str]) -> int:
    """Run the reporter as the detached process that `spool.wake` starts."""
    repo = find_repository(arguments[0])
    if repo is None or not is_enabled(state_of(repo)):
        return 1
    try:
        report(repo, SystemClock())
    except Exception:
        spool.complain(state_of(repo), traceback.format_exc())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
