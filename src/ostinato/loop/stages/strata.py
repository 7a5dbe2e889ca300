"""The strata of the live sessions of people, which are read before they are collected."""

from collections.abc import Mapping

from ostinato.model.tokenizer import Tokenizer
from ostinato.rewards.requests.strata import request_of, strata
from ostinato.store import Ledger, Phase, Store
from ostinato.types import Source


def strata_of_people(store: Store, tokenizer: Tokenizer) -> Mapping[str, str]:
    """Return the stratum of each ended live session whose prompt is not at its end, by the session's id.

    A session whose first prompt cannot be read is in none; the collection puts such sessions together.
    """
    ended = [session.id for session in store.sessions(source=Source.LIVE, ended=True)]
    phases = Ledger(store).live_prompts(ended)
    waiting = [id_ for id_ in ended if phases[id_][1] in {None, Phase.RESERVED, Phase.OFFERED}]
    read = {id_: request_of(turns, tokenizer) for id_, turns in store.turns_of(waiting).items()}
    return strata({id_: request for id_, request in read.items() if request is not None})
