"""The state root of practice: one digest by which two runs are compared to the bit."""

import hashlib

from sqlalchemy import select

from ostinato.store.ledger.phases import Phase, Stage
from ostinato.store.sql import schema
from ostinato.store.store import Store


def state_root(store: Store, weights: str) -> str:
    """Return the SHA-256 over the digest of the weights, and over every practice prompt: its phase, the
    version it was trained in, and the rewards of its group, exact to the bit.

    Sessions' ids, times and attempts are no part of it, so a run that was interrupted can have the root of
    one that was not.
    """
    prompt, group, training = schema.prompts.c, schema.groups.c, schema.trainings.c
    joined = schema.prompts.outerjoin(schema.groups, group.prompt == prompt.prompt)
    joined = joined.outerjoin(schema.trainings, training.prompt == prompt.prompt)
    query = select(prompt.prompt, prompt.phase, training.version, group.rewards).select_from(joined)
    query = query.where(prompt.stage == Stage.PRACTICE.value).order_by(prompt.prompt, training.version)
    digest = hashlib.sha256(f"{weights}\n".encode())
    with store.database.read() as connection:
        for name, phase, version, rewards in connection.execute(query):
            exact = "" if rewards is None else rewards.hex()
            digest.update(f"{name} {Phase(phase)} {version} {exact}\n".encode())
    return digest.hexdigest()
