"""What must be zero, counted from the store and from the engines' own counters."""

from collections.abc import Iterable, Mapping
from typing import Any

from ostinato.store import Store
from ostinato.store.ledger import Ledger


def integrity(store: Store, stages: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Turns without a state, prompts without an end, prompts trained twice, weights that were refused, and
    requests that an engine failed.

    `requests_failed_by_swap` counts every failed request of every engine: an upper bound.
    """
    ledger = Ledger(store)
    engines = [stats for stage in stages for stats in _engines(stage)]
    return {
        "turns_unaccounted": ledger.unaccounted(),
        "prompts_unended": ledger.unended(),
        "prompts_trained_twice": ledger.trained_twice(),
        "digest_mismatches": sum(stats["mismatches"] for stats in engines),
        "requests_failed_by_swap": sum(stats["failed"] for stats in engines),
        "swaps": sum(stats["swaps"] for stats in engines),
        "turns_by_state": {str(state): n for state, n in ledger.states().items()},
    }


def _engines(stage: Mapping[str, Any]) -> list[Mapping[str, int]]:
    several = stage.get("engines", {})
    return [*([stage["engine"]] if "engine" in stage else []), *several.values()]
