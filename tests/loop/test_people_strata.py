"""The strata of people's sessions: by what they asked, for those that are not collected yet."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.rewards.follow_ups.test_read import TOKENIZER, said
from tests.store.builders import session

from ostinato.loop.people import strata_of_people
from ostinato.rewards.live.definition import LIVE
from ostinato.rollout.collect import Collector, uncollected
from ostinato.store import Ledger, Store
from ostinato.types import Ending, Signal, SignalKind, Source


def test_sessions_are_compared_within_what_was_asked_until_they_are_collected(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    store.accounts.set_consent(user="ada", granted=True, by="ada")

    def brought(id_: str, words: str, ending: Ending | None = Ending.FINISHED) -> None:
        about = session(id_, source=Source.LIVE, user="ada", ending=ending, task_id=None, consent=True)
        kept = Signal(session_id=id_, kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=1.0)
        store.record([replace(said(0, words), session_id=id_)], [kept], [about])

    for number in range(8):
        brought(f"fix{number}", f"fix cart{number}.py")
    brought("docs", "write the readme")
    brought("going-on", "fix cart.py", ending=None)
    brought("silent", "")
    ended = [each for page in uncollected(store, ["main"]) for each in page]
    found = strata_of_people(store, TOKENIZER, ended)
    assert found == {**{f"fix{number}": "fix/python" for number in range(8)}, "docs": ""}

    strata_of = partial(strata_of_people, store, TOKENIZER)
    assert Collector(store, LIVE).harvest(["main"], strata_of, as_of=1e12).offered == 10
    groups = Ledger(store).claim(4, 99, 0)
    kinds = {group.prompt.removeprefix("live/"): group.kind for group in groups}
    assert kinds == {**found, "silent": ""}
    Ledger(store).drop_claimed({group.id: "shown" for group in groups})
    assert list(uncollected(store, ["main"])) == [{}]
    store.close()
