"""The settings of practice."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ostinato.harness.outside.config import OutsideConfig

SYNCHRONOUS: Literal["synchronous"] = "synchronous"


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeConfig:
    """The settings of sampling."""

    mode: Literal["asynchronous", "synchronous"] = "asynchronous"
    """`synchronous` samples one batch, trains one version on it, and goes on: slower, and repeatable."""
    group_size: int = 8
    samplers: int = 1
    """The processes that sample, each with its own `groups_at_once`; a synchronous run has one."""
    groups_at_once: int = 12
    """So many groups' sessions are in flight at once, of as many groups as it takes to keep them busy."""
    lease_s: float = 60.0
    """Seconds without a sign of life after which a sampler is ended and others take over what it held."""
    ready_ahead: int = 12
    """No new group starts while this many wait for the trainer, since a group that waits grows stale."""
    harder: float = 0.0
    """The preference for hard kinds of tasks late in training: one of twice the mean effort is drawn 1 + this
    times as often, and 0 takes the tasks as they come. No gain of it has been measured."""
    session_s: float = 900.0
    """The longest time that one session may take before it counts as unsolved, or, where our side was at
    fault, as void; a verification that takes longer is void."""
    branches: int = 1
    """The number of branches that a session is forked into, sandbox and all; 1 does not fork."""
    branch_after: int = 1
    """Turns before the fork. A session that ends sooner is not forked."""
    reward: Path | None = None
    """A TOML file with the definition of practice's reward; none takes the one that ships."""
    train_summaries: bool = True
    """False to leave the sessions' own summaries out of the loss: they are then read and never learnt."""
    outside: OutsideConfig = field(default_factory=OutsideConfig)
    """Somebody else's harness, which practises in place of our own."""

    def __post_init__(self) -> None:
        if self.group_size < 2:
            raise ValueError(
                f"practice: group_size is {self.group_size}: a session is compared with the others of its "
                "group, so make it 2 at least"
            )
        if self.samplers < 1 or (self.mode == SYNCHRONOUS and self.samplers > 1):
            raise ValueError(
                f"practice: samplers is {self.samplers} and mode {self.mode}: make it 1 at least, and in a "
                "synchronous run, whose prompts have one order, 1"
            )
        if not self.lease_s > 0:
            raise ValueError(f"practice: lease_s is {self.lease_s}: make it above 0")
        if self.branches < 1 or self.branch_after < 1:
            raise ValueError(
                f"practice: branches {self.branches} and branch_after {self.branch_after} are 1 at least"
            )
        if not self.session_s > 0 or not self.harder >= 0:
            raise ValueError(
                f"practice: session_s {self.session_s} is above 0, and harder {self.harder} is 0 at least"
            )
        if self.outside.harness and self.branches > 1:
            raise ValueError(
                f"practice: {self.outside.harness} cannot be forked: let branches be 1, not {self.branches}"
            )

    def refuse_too_short(self, turns: int, command_s: float) -> None:
        """Raise ValueError where sessions of so many turns, each with one command that takes its whole time
        limit, would not end within `session_s`: they would all count as unsolved.
        """
        outside = self.outside
        if outside.harness and outside.wall_s >= self.session_s:
            raise ValueError(
                f"practice.outside.wall_s is {outside.wall_s:g} and practice.session_s {self.session_s:g}: a "
                "session may last so long by itself, so make session_s larger"
            )
        if not outside.harness and turns * command_s >= self.session_s:
            raise ValueError(
                f"harness.max_turns is {turns}, harness.command_timeout_s {command_s:g} and "
                f"practice.session_s {self.session_s:g}: {turns} turns of a command of {command_s:g} s take "
                f"{turns * command_s:g} s, so make session_s larger than that, or one of the others smaller"
            )

    def refuse_deadlock(self, batch: int) -> None:
        """Raise ValueError for a batch, in groups, that would be waited for without end.

        No group starts while `ready_ahead` wait, so that no more than those and the groups in flight but one
        are sure to come together. A synchronous run starts whole batches and has no such bound.
        """
        most = self.ready_ahead + self.groups_at_once - 1
        if self.mode == SYNCHRONOUS and batch >= 1:
            return
        if self.ready_ahead < 1 or self.groups_at_once < 1 or not 1 <= batch <= most:
            raise ValueError(
                f"refine.groups is {batch}, practice.ready_ahead is {self.ready_ahead} and "
                f"practice.groups_at_once {self.groups_at_once}: practice starts no group while "
                f"{self.ready_ahead} wait, so a step of {batch} could be waited for without end; make "
                f"refine.groups at least 1 and at most ready_ahead + groups_at_once - 1, which is {most}"
            )
