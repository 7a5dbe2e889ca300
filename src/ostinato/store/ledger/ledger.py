"""The promise that no prompt is trained twice, and that everything called trained is in the weights.

A prompt moves as `phases.py` draws it. The trainer claims groups for the version it is about to publish,
publishes, then commits the version with the groups that its weights contain, by their ids and the digest of
the weights. After a crash it commits the groups that the published weights contain and releases the others.
Every transition is one transaction that is on the disk when the call returns.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select, true, update

from ostinato.store.accounts import consented
from ostinato.store.ledger import group_queries, leases, leftovers, pacing, prompt_queries
from ostinato.store.ledger.dropped_groups import drop_claimed, give_back
from ostinato.store.ledger.phases import LedgerError, Phase, Stage, hold_out, move
from ostinato.store.ledger.turn_states import (
    count_reasons,
    count_states,
    count_unaccounted,
    set_states,
    turns_of_groups,
    turns_of_sessions,
    without_advantage,
)
from ostinato.store.sql import schema
from ostinato.store.sql.chunks import chunks, values_in
from ostinato.store.sql.errors import patient
from ostinato.store.sql.row_conversion import group_of, group_row, sample_row
from ostinato.store.store import Store, put_version
from ostinato.types import Checkpoint, Group, Source, State

NOTHING: Mapping[str, str] = {}
ENDS_A_LIVE_PROMPT = {State.VOID, State.MEASURED, State.UNTRAINABLE}
"""States of a whole live session after which it is never collected."""


def prompt_of_session(session_id: str) -> str:
    """Return the prompt of a real person's session: nothing else can share its key."""
    return f"live/{session_id}"


@patient
class Ledger:
    """Single-epoch bookkeeping over a Store, for any number of processes; a sampler has leases as `owner`."""

    def __init__(self, store: Store, owner: str | None = None) -> None:
        self._database = store.database
        self._owner = owner

    def bind(self, chain: str) -> None:
        """Name the chain of weights that is trained from this store; `chain` is the `run` of its manifests.
        Raises LedgerError when the store belongs to another chain."""
        with self._database.write() as connection:
            known = connection.scalar(select(schema.chains.c.chain))
            if known is None:
                connection.execute(schema.chains.insert(), {"chain": chain})
            elif known != chain:
                raise LedgerError(
                    f"{self._database.where} is the record of the chain of weights {known!r}, not of "
                    f"{chain!r}: train with the objects it was trained with, or start another store"
                )

    def reserve(self, prompt: str, stage: Stage = Stage.PRACTICE, sessions: Sequence[str] = ()) -> bool:
        """Return True to the first caller, of all processes and for ever; False afterwards.

        `sessions` are the ids of those in which the prompt will be shown, where no group will name them.
        """
        with self._database.write() as connection:
            if not self._reserve(connection, prompt, stage):
                return False
            if shown := [{"session_id": id, "prompt": prompt} for id in sessions]:
                connection.execute(schema.shown.insert(), shown)
            return True

    def _reserve(self, connection: Connection, prompt: str, stage: Stage) -> bool:
        row = {"prompt": prompt, "stage": stage.value, "phase": Phase.RESERVED.value, "reason": None}
        return connection.execute(self._database.insert_new(schema.prompts), row).rowcount == 1

    def hold_out(self, prompts: Iterable[str]) -> None:
        """Keep these prompts from training for ever: `reserve` refuses them, `offer` and `commit` raise.
        Raises LedgerError, and changes nothing, when a stage that learns has shown one of them already."""
        with self._database.write() as connection:
            hold_out(connection, self._database.insert_new(schema.prompts), prompts)

    def drop(self, prompt: str, reason: str) -> None:
        """End a reserved prompt that became no group. Raises LedgerError unless it is reserved, and held."""
        with self._database.write() as connection:
            if not prompt_queries.in_phase(connection, Phase.RESERVED, [prompt]):
                raise LedgerError(f"prompt {prompt!r} is not reserved: drop only what became no group")
            leases.end_hold(connection, prompt, self._owner)
            move(connection, [prompt], Phase.DROPPED, reason)

    def drop_claimed(self, reason_of: Mapping[str, str], state: State = State.UNTRAINABLE) -> int:
        """Drop claimed groups, by id, for the reasons why none is trained on; return their number."""
        with self._database.write() as connection:
            return drop_claimed(self._database, connection, reason_of, state)

    def offer(self, group: Group, *, stage: Stage = Stage.PRACTICE, facts: int | None = None) -> bool:
        """Hand a complete group to the trainer, and reserve its prompt if that was not done before.

        Offering the same id again changes nothing. `facts` is the number of turns and signals that its
        sessions had when it was scored, if more may follow. Return False, and change nothing, when there are
        more of them already, or when a session was purged. Raises LedgerError when another group of the same
        prompt was offered before, or when the prompt has ended.
        """
        with self._database.write() as connection:
            of_prompt = schema.groups.c.prompt == group.prompt
            known = connection.scalar(select(schema.groups.c.id).where(of_prompt))
            if known is not None and known != group.id:
                raise LedgerError(
                    f"group {group.id!r}: prompt {group.prompt!r} was offered before as {known!r}: "
                    f"sample only prompts that reserve() granted"
                )
            if known is None:
                sessions = {sample.session_id for sample in group.samples}
                if group_queries.purged(connection, sorted(sessions.union(*group.trees))):
                    return False
                if facts is not None and facts != group_queries.facts(connection, sorted(sessions)).total():
                    return False
                self._reserve(connection, group.prompt, stage)
                leases.end_hold(connection, group.prompt, self._owner)
                move(connection, [group.prompt], Phase.OFFERED)
                connection.execute(schema.groups.insert(), {**group_row(group), "facts": facts})
                samples = [sample_row(group.id, i, sample) for i, sample in enumerate(group.samples)]
                connection.execute(schema.samples.insert(), samples)
            return True

    def ready(self, oldest_allowed_version: int) -> int:
        """Return the number of waiting groups whose tokens are all of `oldest_allowed_version` or newer."""
        young = group_queries.not_older(oldest_allowed_version)
        with self._database.read() as connection:
            return len(group_queries.in_phase(connection, Phase.OFFERED, young))

    def may_train(self, newest: int, staleness: int, batch: int) -> bool:
        """Return whether `batch` groups may be trained on now, none in flight made too old (`pacing.py`)."""
        with self._database.read() as connection:
            return pacing.may_train(connection, newest, staleness, batch)

    def claim(self, target_version: int, count: int, oldest_allowed_version: int) -> list[Group]:
        """Take `count` offered groups, or fewer if there are no more, to train `target_version`: of practice
        those with the oldest tokens, of live ones those that were offered first. Before, in the same
        transaction, groups of people who took their consent back become WITHHELD, live groups whose sessions
        have new turns or signals go back to be scored again, and those with older tokens become STALE.
        """
        with self._database.write() as connection:
            self._withhold(connection)
            self._reopen(connection)
            self._end(connection, Phase.STALE, ~group_queries.not_older(oldest_allowed_version))
            offered = group_queries.in_phase(connection, Phase.OFFERED, limit=count)
            ids = [row.id for row in offered]
            move(connection, [row.prompt for row in offered], Phase.CLAIMED)
            group_queries.set_target(connection, ids, target_version)
            samples = group_queries.samples_of(connection, ids)
        return [group_of(row._mapping, samples[row.id]) for row in offered]

    def reopen(self) -> int:
        """Send offered live groups back whose sessions have new turns or signals; return their number."""
        with self._database.write() as connection:
            return self._reopen(connection)

    def _reopen(self, connection: Connection) -> int:
        stale = group_queries.outdated(connection)
        ids = [row.id for row in stale]
        set_states(self._database, connection, turns_of_groups(connection, ids), State.CENSORED)
        group_queries.delete_groups(connection, ids)
        move(connection, [row.prompt for row in stale], Phase.RESERVED, "more was heard of it")
        return len(stale)

    def _withhold(self, connection: Connection) -> None:
        session, sample = schema.sessions.c, schema.samples.c
        joined = schema.sessions.join(schema.samples, sample.session_id == session.id)
        joined = joined.join(schema.groups).join(schema.prompts)
        query = select(session.id, session.organisation, session.user).select_from(joined).distinct()
        waiting = query.where(
            schema.prompts.c.phase == Phase.OFFERED.value,
            session.source == Source.LIVE.value,
            session.consent,
        )
        sessions = connection.execute(waiting).all()
        agreed = {pair: consented(connection, *pair) for pair in {(row[1], row[2]) for row in sessions}}
        withheld = [id for id, *pair in sessions if not agreed[*pair]]
        if withheld:
            self.withdraw(connection, withheld, State.WITHHELD)

    def close_out(self) -> int:
        """End what still waits when training is over, and return the number of groups that became STALE.

        Lessons and practice prompts that became no group are dropped; turns of practice sessions that came
        into no group become STALE when their session ended, else VOID. Claims are left alone: commit or
        release them first. Live sessions that wait for more signals are left too, for a later collection.
        """
        simulated = schema.prompts.c.stage != Stage.LIVE.value
        with self._database.write() as connection:
            leftovers.drop_reserved(connection, simulated, "no group came of it")
            stale = self._end(connection, Phase.STALE, true())
            for state, turns in leftovers.ungrouped_turns(connection).items():
                set_states(self._database, connection, turns, state)
            return stale

    def _end(self, connection: Connection, phase: Phase, which: Any) -> int:
        """End the offered groups that satisfy `which` without training; return their number."""
        ended = group_queries.in_phase(connection, Phase.OFFERED, which)
        ids = [row.id for row in ended]
        move(connection, [row.prompt for row in ended], phase)
        set_states(self._database, connection, turns_of_groups(connection, ids), State.STALE)
        return len(ids)

    def commit(
        self, row: Checkpoint, prompts: Sequence[str] = (), dropped: Mapping[str, str] = NOTHING
    ) -> int:
        """Record a published version, and its batch as trained, in whatever phase the record had the groups.

        The weights contain the batch, so the record follows. `prompts` are those of `row.batch`, in its
        order, for a record that has lost a group. `dropped` maps the groups that were claimed with the batch
        and could not be trained on to their reasons. Return the number of groups that became trained, 0 when
        that was done before. Raises StoreError when the version is known with another digest, and LedgerError
        for an unknown group whose prompt is not given.
        """
        with self._database.write() as connection:
            put_version(self._database, connection, row)
            known = group_queries.prompts_of(connection, row.batch)
            prompt_of = known | dict(zip(row.batch, prompts, strict=False))
            if unknown := [id for id in row.batch if id not in prompt_of]:
                raise LedgerError(
                    f"version {row.version} was trained on {unknown[0]!r}, which is not in the record"
                )
            new = [id for id in row.batch if id not in prompt_queries.trained_in(connection, row.version)]
            if new:
                self._train(connection, row, {id: prompt_of[id] for id in new})
            drop_claimed(self._database, connection, dropped)
            return len(new)

    def _train(self, connection: Connection, row: Checkpoint, prompt_of: Mapping[str, str]) -> None:
        ids = list(prompt_of)
        for prompt in prompt_of.values():
            self._reserve(connection, prompt, Stage.PRACTICE)  # where the record has lost it
        trained = set(prompt_queries.in_phase(connection, Phase.TRAINED, prompt_of.values()))
        move(connection, sorted(set(prompt_of.values()) - trained), Phase.TRAINED)
        group_queries.set_target(connection, ids, row.version)
        version = {"version": row.version, "digest": row.digest}
        trainings = [{**version, "group_id": id, "prompt": prompt} for id, prompt in prompt_of.items()]
        connection.execute(schema.trainings.insert(), trainings)
        flat = without_advantage(connection, ids)
        taught = turns_of_groups(connection, [id for id in ids if id not in flat])
        set_states(self._database, connection, taught, State.TRAINED)
        set_states(self._database, connection, turns_of_groups(connection, list(flat)), State.NO_ADVANTAGE)

    def give_back(self, version: int, base: int) -> int:
        """Let live sessions of versions in (base, version], which nobody will meet, be learnt from again."""
        with self._database.write() as connection:
            return give_back(connection, version, base)

    def lessons_read(self) -> tuple[str, ...]:
        """Return the batch of a version trained by a teacher: one group id for each lesson, in order.

        A lesson counts when a session in which it was shown was trained on.
        """
        turn, state, shown, prompt = schema.turns.c, schema.states.c, schema.shown, schema.prompts
        joined = shown.join(prompt).join(schema.turns, turn.session_id == shown.c.session_id)
        joined = joined.join(schema.states, state.turn_id == turn.id)
        query = select(prompt.c.prompt).select_from(joined).distinct().order_by(prompt.c.prompt)
        read = (prompt.c.stage == Stage.LESSON.value, state.state == State.TRAINED.value)
        with self._database.read() as connection:
            return tuple(f"{group_queries.LESSON}{name}" for name in connection.scalars(query.where(*read)))

    def release(self) -> int:
        """Offer the claimed groups again after a restart, once the published version is committed.

        Return their number, without groups that lost a session to a purge meanwhile: those are withdrawn.
        """
        with self._database.write() as connection:
            claimed = group_queries.in_phase(connection, Phase.CLAIMED)
            move(connection, [row.prompt for row in claimed], Phase.OFFERED)
            group_queries.set_target(connection, [row.id for row in claimed], None)
            return len(claimed) - self._end(connection, Phase.WITHDRAWN, schema.groups.c.withdrawn)

    def withdraw(self, connection: Connection, session_ids: Sequence[str], state: State) -> None:
        """Withdraw, inside a transaction, every offered group with a turn of these sessions.

        Their turns become `state`, the other turns of those groups become STALE. The trainer goes on with a
        group that it has claimed, but cannot claim it again.
        """
        phase = Phase.WITHHELD if state is State.WITHHELD else Phase.WITHDRAWN
        column = schema.samples.c
        for ids in chunks(session_ids):
            theirs = select(column.group_id).where(column.session_id.in_(ids))
            connection.execute(
                update(schema.groups).where(schema.groups.c.id.in_(theirs)).values(withdrawn=True)
            )
        self._end(connection, phase, schema.groups.c.withdrawn)
        if phase is Phase.WITHDRAWN:
            reserved = prompt_queries.in_phase(
                connection, Phase.RESERVED, _live_prompts(connection, session_ids).values()
            )
            move(connection, reserved, phase)
        turns = turns_of_sessions(connection, session_ids)
        set_states(self._database, connection, turns, state)

    def account(self, turn_ids: Iterable[str], state: State, reason: str | None = None) -> None:
        """Set the state of these turns, and the reason. Raises LedgerError when a turn was never recorded."""
        with self._database.write() as connection:
            set_states(self._database, connection, list(turn_ids), state, reason)

    def account_sessions(self, session_ids: Iterable[str], state: State, reason: str | None = None) -> None:
        """Set the state of all turns that these sessions have so far.

        A live session that is void, measured or untrainable as a whole is never collected: its prompt is
        dropped in the same transaction.
        """
        ids = list(session_ids)
        with self._database.write() as connection:
            set_states(self._database, connection, turns_of_sessions(connection, ids), state, reason)
            if state in ENDS_A_LIVE_PROMPT:
                self._drop_live(connection, ids, state.value)

    def give_up(self, session_ids: Sequence[str], reason: str) -> None:
        """Drop the prompts of live sessions that can never be collected."""
        with self._database.write() as connection:
            self._drop_live(connection, session_ids, reason)

    def _drop_live(self, connection: Connection, session_ids: Sequence[str], reason: str) -> None:
        session = schema.sessions.c
        query = select(session.id).where(session.source == Source.LIVE.value)
        live = values_in(connection, query, session.id, session_ids)
        shown = prompt_queries.shown_in(connection, session_ids, Stage.LIVE)
        prompts = {shown.get(id, prompt_of_session(id)) for id in (*live, *shown)}
        for prompt in prompts:
            self._reserve(connection, prompt, Stage.LIVE)
        move(connection, prompt_queries.in_phase(connection, Phase.RESERVED, prompts), Phase.DROPPED, reason)

    def live_prompts(self, session_ids: Sequence[str]) -> dict[str, tuple[str, Phase | None]]:
        """Return, by session id, the prompt it is collected under and the prompt's phase, None if unknown."""
        with self._database.read() as connection:
            prompts = _live_prompts(connection, session_ids)
            phase_of = prompt_queries.phases(connection, prompts.values()).get
        return {id: (prompt, phase_of(prompt)) for id, prompt in prompts.items()}

    def wait(self, prompts: Iterable[str], reason: str) -> None:
        """Set the reason why reserved prompts of live sessions wait; others are left alone."""
        with self._database.write() as connection:
            for some in chunks(prompt_queries.in_phase(connection, Phase.RESERVED, prompts)):
                change = update(schema.prompts).where(schema.prompts.c.prompt.in_(some))
                connection.execute(change.values(reason=reason))

    def account_late(self, session_ids: Sequence[str]) -> None:
        """Make turns STALE that were recorded after their session was collected."""
        with self._database.write() as connection:
            late = turns_of_sessions(connection, session_ids, without_state=True)
            set_states(self._database, connection, late, State.STALE)

    def void_interrupted(self) -> int:
        """Make turns VOID that nothing continues after a restart of a run; return their number.

        Turns of a teacher and in groups that wait for the trainer are kept, those of ended live sessions,
        which are collected later, and those of practice prompts with slots, which the reconciler takes up
        again. Prompts of live sessions that did not end are dropped, and practice prompts without slots.
        """
        with self._database.write() as connection:
            void = leftovers.interrupted_turns(connection)
            set_states(self._database, connection, void, State.VOID)
            leftovers.drop_reserved(connection, leftovers.interrupted_prompts(), "interrupted")
        return len(void)

    def states(self) -> dict[State, int]:
        """Return the number of turns in each state; every state is there."""
        with self._database.read() as connection:
            return count_states(connection)

    def reasons(self, state: State) -> dict[str, int]:
        """Return the number of turns in `state` for each reason that was given."""
        with self._database.read() as connection:
            return count_reasons(connection, state)

    def tally(self, phase: Phase) -> dict[str, tuple[int, float, float]]:
        """Return, by kind of task, the number of groups in `phase`, and their mean length and turns."""
        with self._database.read() as connection:
            return group_queries.tally(connection, phase)

    def unaccounted(self) -> int:
        """Return the number of recorded turns without a state."""
        with self._database.read() as connection:
            return count_unaccounted(connection)

    def unended(self) -> int:
        """Return the number of prompts that neither ended nor, for live sessions, have a reason to wait."""
        with self._database.read() as connection:
            return prompt_queries.unended(connection)

    def trained_twice(self) -> int:
        """Return the number of prompts trained more than once, by trainings and by the batches."""
        with self._database.read() as connection:
            return prompt_queries.trained_twice(connection)


def _live_prompts(connection: Connection, session_ids: Sequence[str]) -> dict[str, str]:
    shown = prompt_queries.shown_in(connection, session_ids, Stage.LIVE)
    return {id: shown.get(id, prompt_of_session(id)) for id in session_ids}
