"""The path that is taken is the cheapest there is, by comparison with trying all of them."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from ostinato.sync.chain.manifest import Way
from ostinato.sync.chain.paths import cheapest, newest_anchor, still_useful

VERSIONS = 7


@st.composite
def graphs(draw: st.DrawFn) -> list[Way]:
    edges = draw(
        st.lists(
            st.tuples(st.integers(0, VERSIONS), st.integers(-1, VERSIONS), st.integers(0, 5)),
            max_size=14,
        )
    )
    return [
        Way(version=to, base=None if at < 0 else at, bytes=size, digest=str(i), beside=i % 2 == 0)
        for i, (to, at, size) in enumerate(edges)
        if at < to
    ]


def all_paths(ways: list[Way], held: int | None, target: int) -> Iterator[tuple[Way, ...]]:
    if target == held:
        yield ()
        return
    for way in ways:
        if way.version == target:
            if way.base is None:
                yield (way,)
            else:
                yield from ((*before, way) for before in all_paths(ways, held, way.base))


def cost(path: tuple[Way, ...]) -> tuple[int, int]:
    return sum(way.bytes for way in path), len(path)


@given(graphs(), st.none() | st.integers(0, VERSIONS), st.integers(0, VERSIONS))
def test_no_path_is_cheaper(ways: list[Way], held: int | None, target: int) -> None:
    path = cheapest(ways, held, target)
    others = list(all_paths(ways, held, target))
    assert (path is None) == (not others)
    if path is not None:
        assert path in others and cost(path) == min(map(cost, others))


@given(graphs(), st.integers(0, VERSIONS))
def test_an_excluded_way_is_not_taken(ways: list[Way], target: int) -> None:
    for doubted in ways:
        path = cheapest(ways, None, target, {doubted.digest})
        assert path is None or doubted not in path


@given(graphs())
def test_useful_ways_lead_from_the_newest_anchors(ways: list[Way]) -> None:
    kept = still_useful(ways)
    assert newest_anchor(kept) == newest_anchor(ways)
    anchors = sorted({way.version for way in ways if way.base is None})
    for target in range(anchors[-2:][0] if anchors else 0, VERSIONS + 1):
        assert (cheapest(kept, None, target) is None) == (cheapest(ways, None, target) is None) or any(
            way.base is not None and way.base < anchors[-2:][0] for way in ways
        )
