"""The counts that must be zero, from the store and from the engines' own counters."""

from collections.abc import Sequence

from ostinato.loop.results import Counters, Integrity
from ostinato.store import Store
from ostinato.store.ledger.ledger import Ledger


def integrity(store: Store, engines: Sequence[Counters]) -> Integrity:
    """Count turns without a state, prompts without an end, prompts trained twice, weights that were refused,
    and requests that an engine failed."""
    ledger = Ledger(store)
    return Integrity(
        turns_unaccounted=ledger.unaccounted(),
        prompts_unended=ledger.unended(),
        prompts_trained_twice=ledger.trained_twice(),
        digest_mismatches=_total(engines, "mismatches"),
        requests_failed_by_swap=_total(engines, "failed"),
        swaps=_total(engines, "swaps"),
        turns_by_state={str(state): n for state, n in ledger.states().items()},
    )


def _total(engines: Sequence[Counters], name: str) -> int:
    return int(sum(engine[name] for engine in engines))
