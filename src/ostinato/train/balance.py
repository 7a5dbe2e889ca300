"""Rows shared out over ranks so that all of them compute for about as long.

Under FSDP every rank waits for the others at each layer of each pack, so it is not enough that their sums
agree: packs that are computed at the same time must cost the same. Hence the packs themselves are made equal,
by the smallest bound on their cost that needs no more of them, and are dealt by cost.

The cost of a pack is its tokens plus `attention` times its pairs of a token and one that it attends to.
"""

import math
from collections.abc import Sequence

from ostinato.train.batch import ScoredRow
from ostinato.train.packing import Pack, common_prefix, pack, parts_of

HALVINGS = 24
"""The steps in which the bound on a pack's cost is found, each of which halves what is still open."""


def shared_out(rows: Sequence[ScoredRow], tokens: int, ranks: int, attention: float) -> list[list[Pack]]:
    """Return the packs of each rank, as many for each, of at most `tokens` or of one row.

    A pack without rows scores a token for nothing, where there are fewer packs than ranks need. Without a
    prefix that rows share, no pack costs more than the mean of all plus the largest row, and no rank more
    than the mean of the ranks plus the largest pack.
    """
    whole = parts_of(rows, tokens)
    if ranks == 1:
        return [[pack([rows[i] for i in part], part) for part in whole]]
    wanted = math.ceil(len(whole) / ranks) * ranks
    parts = _equal(rows, tokens, attention, wanted, whole)
    costs = [cost([rows[i] for i in part], attention) for part in parts]
    order = sorted(range(len(parts)), key=lambda i: -costs[i])
    loads, dealt = [0.0] * ranks, [list[Pack]() for _ in range(ranks)]
    nothing = pack([ScoredRow(ids=(0, 0), counted=(False, True))], ())
    for start in range(0, wanted, ranks):
        together = order[start : start + ranks]
        for rank, i in zip(sorted(range(ranks), key=lambda rank: loads[rank]), together, strict=False):
            loads[rank] += costs[i]
            dealt[rank].append(pack([rows[j] for j in parts[i]], parts[i]))
        for own in dealt:
            own.extend([nothing] * (start // ranks + 1 - len(own)))
    return dealt


def cost(rows: Sequence[ScoredRow], attention: float) -> float:
    """Return the cost of rows in one pack, in tokens.

    >>> cost([ScoredRow(ids=(1, 2, 3, 4), counted=(False, False, False, True))], 0.5)
    7.5
    """
    prefix = min((common_prefix(rows[0], row) for row in rows), default=0) if len(rows) > 1 else 0
    spans = [len(row.ids) - 1 - prefix for row in rows]
    pairs = prefix * prefix + sum(span * (prefix + span) for span in spans)
    return prefix + sum(spans) + attention * pairs


def _equal(
    rows: Sequence[ScoredRow], tokens: int, attention: float, wanted: int, whole: list[list[int]]
) -> list[list[int]]:
    """Return at most `wanted` parts whose largest cost is as small as it can be, in the order of prefixes."""
    low = max((cost([rows[i]], attention) for part in whole for i in part), default=0.0)
    best, high = whole, max((cost([rows[i] for i in part], attention) for part in whole), default=0.0)
    for _ in range(HALVINGS):
        bound = (low + high) / 2
        parts = parts_of(rows, tokens, lambda some: cost(some, attention) <= bound)  # noqa: B023
        if len(parts) <= wanted:
            best, high = parts, bound
        else:
            low = bound
    return best
