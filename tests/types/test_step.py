"""The figures of a step give their numbers by path."""

from ostinato.types import GapFigures, KindFigures, Percentiles, StepFigures

FIGURES = StepFigures(
    version=7,
    loss=-0.25,
    gradient=0.4,
    rows=3,
    tokens=60,
    sessions=4,
    staleness=1,
    ratio=1.01,
    cut=0.05,
    mismatch=Percentiles(p50=0.1, p99=0.5, most=0.75),
    effective=0.9,
    gaps=(GapFigures(gap=1, tokens=60, mismatch=Percentiles(p50=0.1, p99=0.5, most=0.75), effective=0.9),),
    entropy=1.5,
    k1=None,
    reward=0.5,
    best=1.0,
    parts={"solved": 0.75, "effort": -0.25},
    kinds={"fix": KindFigures(groups=1, length=30.0, turns=2.0, reward=0.5, best=1.0)},
    stale_so_far={"fix": KindFigures(groups=2, length=99.5, turns=4.0)},
    lengths=Percentiles(p50=15.0, p99=19.0, most=20.0),
    dropped_so_far={"dropped: every session was void": 3},
    seconds=3.0,
    waited=1.0,
)


def test_numbers_are_found_by_their_path() -> None:
    flat = FIGURES.flat()
    assert flat["mismatch/p99"] == 0.5 and flat["gaps/1/effective"] == 0.9 and flat["parts/effort"] == -0.25
    assert (
        flat["kinds/fix/reward"] == 0.5
        and flat["stale_so_far/fix/groups"] == 2.0
        and flat["idle"] == 0.25
        and flat["tokens_a_second"] == 20.0
    )
    assert "k1" not in flat and "stale_so_far/fix/reward" not in flat
