"""The tables of the record. One row is one fact; only arms and the states of turns and groups change."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

SCHEMA = 14
"""The number of this layout; it rises whenever a table changes."""
METADATA = MetaData()


def _session(index: bool = False) -> Column[str]:
    return Column("session_id", Text, ForeignKey("sessions.id"), nullable=False, index=index)


counters = Table(
    "counters",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("value", Integer, nullable=False),
)
sessions = Table(
    "sessions",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("source", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("arm", Text, nullable=False),
    Column("task_id", Text),
    Column("harness", Text, nullable=False),
    Column("started_at", Float, nullable=False, index=True),
    Column("ending", Text),
    Column("organisation", Text, nullable=False),
    Column("consent", Boolean, nullable=False),
)
turns = Table(
    "turns",
    METADATA,
    Column("id", Text, primary_key=True),
    _session(),
    Column("number", Integer, nullable=False),
    Column("segment", Integer, nullable=False),
    Column("arm", Text, nullable=False),
    Column("finish", Text, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("latency_s", Float, nullable=False),
    Column("broken", Text),
    Column("kind", Text, nullable=False),
    Column("untrainable", Text),
    Column("temperature", Float, nullable=False),
    Column("top_p", Float, nullable=False),
    Column("top_k", Integer, nullable=False),
    Column("min_p", Float, nullable=False),
    Column("presence_penalty", Float, nullable=False),
    Column("frequency_penalty", Float, nullable=False),
    Column("repetition_penalty", Float, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("structure", Text),
    Column("distribution", Text, nullable=False, server_default="tempered"),
    Column("base", Integer),
    Column("length", Integer),
    Column("digest", LargeBinary),
    Column("prompt_ids", LargeBinary, nullable=False),
    Column("ids", LargeBinary, nullable=False),
    Column("logprobs", LargeBinary, nullable=False),
    Column("versions", LargeBinary, nullable=False),
    Column("routes", LargeBinary),
    Index("contexts_of_session", "session_id", "number", "length", "digest"),
)
"""`prompt_ids` are those after the context of turn `base`, or the whole prompt: see `increments.py`. `length`
and `digest` are of the context: the whole prompt and the completion."""
states = Table(
    "states",
    METADATA,
    Column("turn_id", Text, ForeignKey("turns.id"), primary_key=True),
    Column("state", Text, nullable=False, index=True),
    Column("reason", Text),
    sqlite_with_rowid=False,
)
"""A table beside `turns`, so that a new state does not rewrite the row that holds the tokens."""
signals = Table(
    "signals",
    METADATA,
    Column("id", Text, primary_key=True),
    _session(index=True),
    Column("kind", Text, nullable=False),
    Column("number", Float),
    Column("text", Text),
    Column("observed_at", Float, nullable=False),
    Column("turn", Integer),
    Column("edit", Text),
    Column("received_at", Float),
    CheckConstraint("(number IS NULL) <> (text IS NULL)", name="signal_has_one_value"),
)
rewards = Table(
    "rewards",
    METADATA,
    Column("order", Integer, primary_key=True),
    _session(index=True),
    Column("definition", Text, nullable=False),
    Column("total", Float, nullable=False),
    Column("parts", Text, nullable=False),
    Column("as_of", Float),
)
definitions = Table(
    "definitions",
    METADATA,
    Column("hash", Text, primary_key=True),
    Column("text", Text, nullable=False),
)
"""The definitions of reward that scored anything here, as TOML, so that each reward can be computed again."""
versions = Table(
    "versions",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("parent", Integer),
    Column("digest", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("bytes", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("batch", Text, nullable=False),
)
reports = Table(
    "reports",
    METADATA,
    Column("order", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("version", Integer, nullable=False, index=True),
    Column("scores", Text, nullable=False),
    Column("rates", Text, nullable=False),
    Column("harness", Text, nullable=False),
)
verdicts = Table(
    "verdicts",
    METADATA,
    Column("order", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("version", Integer, nullable=False, index=True),
    Column("decision", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("evidence", Text, nullable=False),
)
cycle_log = Table(
    "cycle_log",
    METADATA,
    Column("order", Integer, primary_key=True),
    Column("at", Float, nullable=False),
    Column("by", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("cycle", Text, nullable=False),
    Column("detail", Text, nullable=False),
)
"""Append-only: what the cycle did, and what people told it to do."""
releases = Table(
    "releases",
    METADATA,
    Column("order", Integer, primary_key=True),
    Column("experiment", Text, nullable=False, index=True),
    Column("at", Float, nullable=False),
    Column("stage", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("share", Float, nullable=False),
    Column("detail", Text, nullable=False),
)
"""Append-only: the steps of a candidate on its way to people. The last row of an experiment says where it
is."""
arms = Table(
    "arms",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("share", Float, nullable=False),
    Column("engine", Text, nullable=False),
    Column("experiment", Text, nullable=False),
)
keys = Table(
    "keys",
    METADATA,
    Column("hash", Text, primary_key=True),
    Column("user", Text, nullable=False),
    Column("organisation", Text, nullable=False),
    Column("roles", Text, nullable=False),
    Column("arm", Text),
    Column("requests_per_minute", Integer),
    Column("concurrent", Integer),
    Column("created_at", Float, nullable=False),
    Column("revoked_at", Float),
)
consents = Table(
    "consents",
    METADATA,
    Column("order", Integer, primary_key=True),
    Column("organisation", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("granted", Boolean, nullable=False),
    Column("set_by", Text, nullable=False),
    Column("set_at", Float, nullable=False),
    Index("consents_of", "organisation", "user"),
)
"""Append-only: the last row of an organisation and user holds. A row without a user is the organisation's."""
events = Table(
    "events",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("user", Text, nullable=False, index=True),
    Column("organisation", Text, nullable=False),
    Column("session_id", Text, index=True),
    Column("turn", Integer),
    Column("observed_at", Float, nullable=False),
    Column("attributes", Text, nullable=False),
)
"""`session_id` has no foreign key: a client may report on a session before its first turn is recorded."""
purges = Table(
    "purges",
    METADATA,
    Column("session_id", Text, ForeignKey("sessions.id"), primary_key=True),
    Column("purged_at", Float, nullable=False),
    Column("purged_by", Text, nullable=False),
    Column("counts", Text, nullable=False),
)
"""The tombstones of removed sessions: when, by whom, how much there was."""
prompts = Table(
    "prompts",
    METADATA,
    Column("prompt", Text, primary_key=True),
    Column("stage", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("reason", Text),
    Index("prompts_by_phase", "phase"),
)
"""One row is one prompt that a model was or will be shown. Only `ledger/phases.py` changes its phase."""
shown = Table(
    "shown",
    METADATA,
    Column("session_id", Text, primary_key=True),
    Column("prompt", Text, ForeignKey("prompts.prompt"), nullable=False, index=True),
)
"""The sessions in which a prompt was shown, where no group names them. There is no foreign key to sessions,
because a row is written before its session begins."""
slots = Table(
    "slots",
    METADATA,
    Column("order", Integer, primary_key=True),
    Column("prompt", Text, ForeignKey("prompts.prompt"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("session_id", Text, nullable=False, index=True),
    Column("reason", Text),
    Column("at", Float, nullable=False),
    Column("kept", LargeBinary),
    Column("turns", Integer),
    Column("thinking", Integer),
    Index("slots_of_prompt", "prompt", "number"),
)
"""Append-only: one row is one transition of one place in the group of a practice prompt, and the last row of
a place is its state. `kept` is what the next transition needs: of a finished session its outcome and changes,
which are removed once they are verified; of a scored one the names of its sessions. `turns` and `thinking`
(tokens) are those of a scored session."""
samplers = Table(
    "samplers",
    METADATA,
    Column("owner", Text, primary_key=True),
    Column("until", Float, nullable=False),
)
"""The leases of samplers. `until` is seconds since the epoch by the database's clock; beyond it, another
sampler takes over the prompts that the owner holds."""
holds = Table(
    "holds",
    METADATA,
    Column("prompt", Text, ForeignKey("prompts.prompt"), primary_key=True),
    Column("owner", Text, nullable=False, index=True),
)
"""The sampler that works on the slots of each reserved practice prompt."""
groups = Table(
    "groups",
    METADATA,
    Column("order", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("prompt", Text, ForeignKey("prompts.prompt"), nullable=False, unique=True),
    Column("rewards", LargeBinary, nullable=False),
    Column("kind", Text, nullable=False),
    Column("oldest_version", Integer, nullable=False),
    Column("facts", Integer),
    Column("target_version", Integer),
    Column("withdrawn", Boolean, nullable=False),
    Column("trees", Text, nullable=False, server_default="[]"),
)
"""Groups of samples; a group is in the phase of its prompt. `facts` is the number of turns and signals that
its sessions had when it was scored, where more of them may follow. `trees` is JSON."""
samples = Table(
    "samples",
    METADATA,
    Column("group_id", Text, ForeignKey("groups.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("session_id", Text, nullable=False, index=True),
    Column("turns", LargeBinary, nullable=False),
    Column("ids", LargeBinary, nullable=False),
    Column("mask", LargeBinary, nullable=False),
    Column("logprobs", LargeBinary, nullable=False),
    Column("versions", LargeBinary, nullable=False),
    Column("temperatures", LargeBinary, nullable=False),
    Column("advantage", Float, nullable=False),
    Column("routes", LargeBinary),
)
trainings = Table(
    "trainings",
    METADATA,
    Column("order", Integer, primary_key=True),
    Column("version", Integer, nullable=False, index=True),
    Column("digest", Text, nullable=False),
    Column("group_id", Text, nullable=False),
    Column("prompt", Text, nullable=False, index=True),
)
"""Append-only and without a unique key, so that a count of its rows is evidence and not a tautology."""
steps = Table(
    "steps",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("figures", Text, nullable=False),
)
"""The figures of the optimizer step that made each version, as the JSON of `types.StepFigures`."""
chains = Table("chains", METADATA, Column("chain", Text, primary_key=True))
"""The one chain of weights that is trained from this store, by the name that its manifests carry."""
passes = Table(
    "passes",
    METADATA,
    Column("suite", Text, primary_key=True),
    Column("hash", Text, primary_key=True),
    Column("side", Text, primary_key=True),
    Column("task", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("session_id", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("result", Text),
)
"""The passes of benchmark runs. One row is one pass of one side over one task; `result` is null
until the pass is over, and is written once."""
