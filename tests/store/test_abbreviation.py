import random

import pytest
from tests.store.builders import session

from ostinato.store import Store
from ostinato.store.abbreviation import abbreviated, session_meant
from ostinato.types import IdError


def test_an_abbreviated_id_means_its_session(store: Store) -> None:
    """Ids of many lengths, some of which begin others, with letters whose order depends on the language."""
    chance = random.Random(0)
    ids = {"".join(chance.choices("abé/", k=chance.randint(1, 12))) for _ in range(60)}
    ids |= {id + "/" + "a" * n for id in ids for n in (0, 6, 7)}
    store.record([], sessions=[session(id) for id in ids])
    for id in ids:
        short = abbreviated(store, id)
        assert id.startswith(short) and len(short) >= min(8, len(id))
        assert session_meant(store, id) == id == session_meant(store, short)


def test_the_candidates_are_named(store: Store) -> None:
    store.record([], sessions=[session(f"abcd{n}") for n in range(3)])
    with pytest.raises(IdError, match="give more of the one you mean: abcd0, abcd1, abcd2"):
        session_meant(store, "abcd")
    with pytest.raises(IdError, match="no session abce in"):
        session_meant(store, "abce")
