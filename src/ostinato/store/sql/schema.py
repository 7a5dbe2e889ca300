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

SCHEMA = 17
"""The number of this layout; it rises whenever a table changes, and no other one is read."""
METADATA = MetaData()
WORDS = Text().with_variant(Text(collation="C"), "postgresql")
"""Text, sorted by its code points on both kinds of database."""
WHOLE = Integer().with_variant(BigInteger(), "postgresql")
"""An integer of 64 bits on both kinds of database."""


def _session(index: bool = False) -> Column[str]:
    return Column("session_id", WORDS, ForeignKey("sessions.id"), nullable=False, index=index)


counters = Table(
    "counters",
    METADATA,
    Column("name", WORDS, primary_key=True),
    Column("value", WHOLE, nullable=False),
)
sessions = Table(
    "sessions",
    METADATA,
    Column("id", WORDS, primary_key=True),
    Column("source", WORDS, nullable=False),
    Column("user", WORDS, nullable=False),
    Column("arm", WORDS, nullable=False),
    Column("task_id", WORDS),
    Column("harness", WORDS, nullable=False),
    Column("started_at", Float, nullable=False, index=True),
    Column("ending", WORDS),
    Column("organisation", WORDS, nullable=False),
    Column("consent", Boolean, nullable=False),
)
turns = Table(
    "turns",
    METADATA,
    Column("id", WORDS, primary_key=True),
    _session(),
    Column("number", WHOLE, nullable=False),
    Column("segment", WHOLE, nullable=False),
    Column("arm", WORDS, nullable=False),
    Column("finish", WORDS, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("latency_s", Float, nullable=False),
    Column("broken", WORDS),
    Column("kind", WORDS, nullable=False),
    Column("untrainable", WORDS),
    Column("temperature", Float, nullable=False),
    Column("top_p", Float, nullable=False),
    Column("top_k", WHOLE, nullable=False),
    Column("min_p", Float, nullable=False),
    Column("presence_penalty", Float, nullable=False),
    Column("frequency_penalty", Float, nullable=False),
    Column("repetition_penalty", Float, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("structure", WORDS),
    Column("distribution", WORDS, nullable=False, server_default="tempered"),
    Column("base", WHOLE),
    Column("length", WHOLE),
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
    Column("turn_id", WORDS, ForeignKey("turns.id"), primary_key=True),
    Column("state", WORDS, nullable=False, index=True),
    Column("reason", WORDS),
    sqlite_with_rowid=False,
)
"""A table beside `turns`, so that a new state does not rewrite the row that holds the tokens."""
signals = Table(
    "signals",
    METADATA,
    Column("id", WORDS, primary_key=True),
    _session(index=True),
    Column("kind", WORDS, nullable=False),
    Column("number", Float),
    Column("text", WORDS),
    Column("observed_at", Float, nullable=False),
    Column("turn", WHOLE),
    Column("edit", WORDS),
    Column("received_at", Float),
    CheckConstraint("(number IS NULL) <> (text IS NULL)", name="signal_has_one_value"),
)
rewards = Table(
    "rewards",
    METADATA,
    Column("order", WHOLE, primary_key=True),
    _session(index=True),
    Column("definition", WORDS, nullable=False),
    Column("total", Float, nullable=False),
    Column("parts", WORDS, nullable=False),
    Column("as_of", Float),
)
definitions = Table(
    "definitions",
    METADATA,
    Column("hash", WORDS, primary_key=True),
    Column("text", WORDS, nullable=False),
)
"""The definitions of reward that scored anything here, as TOML, so that each reward can be computed again."""
versions = Table(
    "versions",
    METADATA,
    Column("version", WHOLE, primary_key=True, autoincrement=False),
    Column("parent", WHOLE),
    Column("digest", WORDS, nullable=False),
    Column("kind", WORDS, nullable=False),
    Column("bytes", WHOLE, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("batch", WORDS, nullable=False),
)
reports = Table(
    "reports",
    METADATA,
    Column("order", WHOLE, primary_key=True),
    Column("id", WORDS, nullable=False, unique=True),
    Column("version", WHOLE, nullable=False, index=True),
    Column("scores", WORDS, nullable=False),
    Column("rates", WORDS, nullable=False),
    Column("harness", WORDS, nullable=False),
)
verdicts = Table(
    "verdicts",
    METADATA,
    Column("order", WHOLE, primary_key=True),
    Column("id", WORDS, nullable=False, unique=True),
    Column("version", WHOLE, nullable=False, index=True),
    Column("decision", WORDS, nullable=False),
    Column("reason", WORDS, nullable=False),
    Column("evidence", WORDS, nullable=False),
)
cycle_log = Table(
    "cycle_log",
    METADATA,
    Column("order", WHOLE, primary_key=True),
    Column("at", Float, nullable=False),
    Column("by", WORDS, nullable=False),
    Column("action", WORDS, nullable=False),
    Column("cycle", WORDS, nullable=False),
    Column("detail", WORDS, nullable=False),
)
"""Append-only: what the cycle did, and what people told it to do."""
releases = Table(
    "releases",
    METADATA,
    Column("order", WHOLE, primary_key=True),
    Column("experiment", WORDS, nullable=False, index=True),
    Column("at", Float, nullable=False),
    Column("stage", WORDS, nullable=False),
    Column("step", WHOLE, nullable=False),
    Column("share", Float, nullable=False),
    Column("detail", WORDS, nullable=False),
)
"""Append-only: the steps of a candidate on its way to people. The last row of an experiment says where it
is."""
arms = Table(
    "arms",
    METADATA,
    Column("name", WORDS, primary_key=True),
    Column("position", WHOLE, nullable=False),
    Column("version", WHOLE, nullable=False),
    Column("share", Float, nullable=False),
    Column("engine", WORDS, nullable=False),
    Column("experiment", WORDS, nullable=False),
)
keys = Table(
    "keys",
    METADATA,
    Column("hash", WORDS, primary_key=True),
    Column("user", WORDS, nullable=False),
    Column("organisation", WORDS, nullable=False),
    Column("roles", WORDS, nullable=False),
    Column("arm", WORDS),
    Column("requests_per_minute", WHOLE),
    Column("concurrent", WHOLE),
    Column("created_at", Float, nullable=False),
    Column("revoked_at", Float),
)
joins = Table(
    "joins",
    METADATA,
    Column("hash", WORDS, primary_key=True),
    Column("user", WORDS, nullable=False),
    Column("organisation", WORDS, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("used_at", Float),
    Column("key", WORDS),
)
"""The codes by which people get their first key, by their SHA-256; `key` is the hash of that key."""
consents = Table(
    "consents",
    METADATA,
    Column("order", WHOLE, primary_key=True),
    Column("organisation", WORDS, nullable=False),
    Column("user", WORDS, nullable=False),
    Column("granted", Boolean, nullable=False),
    Column("set_by", WORDS, nullable=False),
    Column("set_at", Float, nullable=False),
    Index("consents_of", "organisation", "user"),
)
"""Append-only: the last row of an organisation and user holds. A row without a user is the organisation's."""
events = Table(
    "events",
    METADATA,
    Column("id", WORDS, primary_key=True),
    Column("name", WORDS, nullable=False),
    Column("user", WORDS, nullable=False, index=True),
    Column("organisation", WORDS, nullable=False),
    Column("session_id", WORDS, index=True),
    Column("turn", WHOLE),
    Column("observed_at", Float, nullable=False),
    Column("attributes", WORDS, nullable=False),
)
"""`session_id` has no foreign key: a client may report on a session before its first turn is recorded."""
purges = Table(
    "purges",
    METADATA,
    Column("session_id", WORDS, ForeignKey("sessions.id"), primary_key=True),
    Column("purged_at", Float, nullable=False),
    Column("purged_by", WORDS, nullable=False),
    Column("counts", WORDS, nullable=False),
)
"""The tombstones of removed sessions: when, by whom, how much there was."""
prompts = Table(
    "prompts",
    METADATA,
    Column("prompt", WORDS, primary_key=True),
    Column("stage", WORDS, nullable=False),
    Column("phase", WORDS, nullable=False),
    Column("reason", WORDS),
    Index("prompts_by_phase", "phase"),
)
"""One row is one prompt that a model was or will be shown. Only `ledger/phases.py` changes its phase."""
shown = Table(
    "shown",
    METADATA,
    Column("session_id", WORDS, primary_key=True),
    Column("prompt", WORDS, ForeignKey("prompts.prompt"), nullable=False, index=True),
)
"""The sessions in which a prompt was shown, where no group names them. There is no foreign key to sessions,
because a row is written before its session begins."""
slots = Table(
    "slots",
    METADATA,
    Column("order", WHOLE, primary_key=True),
    Column("prompt", WORDS, ForeignKey("prompts.prompt"), nullable=False),
    Column("number", WHOLE, nullable=False),
    Column("attempt", WHOLE, nullable=False),
    Column("state", WORDS, nullable=False),
    Column("session_id", WORDS, nullable=False, index=True),
    Column("reason", WORDS),
    Column("at", Float, nullable=False),
    Column("kept", LargeBinary),
    Column("turns", WHOLE),
    Column("thinking", WHOLE),
    Index("slots_of_prompt", "prompt", "number"),
)
"""Append-only: one row is one transition of one place in the group of a practice prompt, and the last row of
a place is its state. `kept` is what the next transition needs: of a finished session its outcome and changes,
which are removed once they are verified; of a scored one the names of its sessions. `turns` and `thinking`
(tokens) are those of a scored session."""
samplers = Table(
    "samplers",
    METADATA,
    Column("owner", WORDS, primary_key=True),
    Column("until", Float, nullable=False),
)
"""The leases of samplers. `until` is seconds since the epoch by the database's clock; beyond it, another
sampler takes over the prompts that the owner holds."""
holds = Table(
    "holds",
    METADATA,
    Column("prompt", WORDS, ForeignKey("prompts.prompt"), primary_key=True),
    Column("owner", WORDS, nullable=False, index=True),
)
"""The sampler that works on the slots of each reserved practice prompt."""
groups = Table(
    "groups",
    METADATA,
    Column("order", WHOLE, primary_key=True),
    Column("id", WORDS, nullable=False, unique=True),
    Column("prompt", WORDS, ForeignKey("prompts.prompt"), nullable=False, unique=True),
    Column("rewards", LargeBinary, nullable=False),
    Column("kind", WORDS, nullable=False),
    Column("oldest_version", WHOLE, nullable=False),
    Column("facts", WHOLE),
    Column("target_version", WHOLE),
    Column("withdrawn", Boolean, nullable=False),
    Column("trees", WORDS, nullable=False, server_default="[]"),
    Column("person", WORDS, nullable=False, server_default=""),
    Column("weight", Float, nullable=False, server_default="1"),
)
"""Groups of samples; a group is in the phase of its prompt. `facts` is the number of turns and signals that
its sessions had when it was scored, where more of them may follow. `trees` is JSON. `person` and `weight` are
those of a live session."""
samples = Table(
    "samples",
    METADATA,
    Column("group_id", WORDS, ForeignKey("groups.id"), primary_key=True),
    Column("position", WHOLE, primary_key=True),
    Column("session_id", WORDS, nullable=False, index=True),
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
    Column("order", WHOLE, primary_key=True),
    Column("version", WHOLE, nullable=False, index=True),
    Column("digest", WORDS, nullable=False),
    Column("group_id", WORDS, nullable=False),
    Column("prompt", WORDS, nullable=False, index=True),
)
"""Append-only and without a unique key, so that a count of its rows is evidence and not a tautology."""
steps = Table(
    "steps",
    METADATA,
    Column("version", WHOLE, primary_key=True, autoincrement=False),
    Column("figures", WORDS, nullable=False),
)
"""The figures of the optimizer step that made each version, as the JSON of `types.StepFigures`."""
chains = Table("chains", METADATA, Column("chain", WORDS, primary_key=True))
"""The one chain of weights that is trained from this store, by the name that its manifests carry."""
passes = Table(
    "passes",
    METADATA,
    Column("suite", WORDS, primary_key=True),
    Column("hash", WORDS, primary_key=True),
    Column("side", WORDS, primary_key=True),
    Column("task", WORDS, primary_key=True),
    Column("number", WHOLE, primary_key=True, autoincrement=False),
    Column("session_id", WORDS, nullable=False),
    Column("attempts", WHOLE, nullable=False),
    Column("result", WORDS),
)
"""The passes of benchmark runs. One row is one pass of one side over one task; `result` is null
until the pass is over, and is written once."""
