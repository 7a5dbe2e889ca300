"""The pools themselves, without a scheduler around them."""

from ostinato.fleet.scheduler.types import PlacementRequest, Size
from ostinato.fleet.scheduler.warm_pool import WarmPool, WarmPools

SIZE = Size(500, 512, 64)


def _ready(pools: WarmPools, id_: str, template: str) -> None:
    pools.adopt(PlacementRequest(id=id_, template=template, size=SIZE, deadline_s=60.0))


def test_the_spare_sandbox_is_the_oldest_of_all_templates() -> None:
    pools = WarmPools({name: WarmPool(size=SIZE, ready=2) for name in ("a", "b")}, "x")
    assert pools.spare() is None
    for id_, template in (("first", "b"), ("second", "a"), ("third", "b")):
        _ready(pools, id_, template)
    assert pools.spare() == "first"
    assert pools.take("b", SIZE) == "first"
    assert pools.spare() == "second"
