"""The pictures of versions: the lineage, and scores with their intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ostinato.dashboard.charts.svg import drawing, element, line, link, text

STEP, LANE, MARGIN = 56.0, 46.0, 30.0
WIDTH, HEIGHT = 220.0, 34.0


def lineage(versions: Sequence[Mapping[str, Any]]) -> Markup:
    """Return the versions in order, each below or beside its parent, with what was decided about it."""
    place: dict[int, tuple[float, float]] = {}
    taken: dict[int, int] = {}
    lanes = 1
    for order, version in enumerate(versions):
        parent = version["parent"]
        lane = taken.get(parent, 0)
        if parent in taken and any(v["parent"] == parent for v in versions[:order]):
            lane, lanes = lanes, lanes + 1
        taken[version["version"]] = lane
        place[version["version"]] = (MARGIN + STEP * order, MARGIN + LANE * lane)
    parts = [
        line(*place[v["parent"]], *place[v["version"]], "edge") for v in versions if v["parent"] in place
    ]
    for version in versions:
        x, y = place[version["version"]]
        decision = version["decision"] or "no verdict"
        served = ", ".join(f"{arm['name']} {arm['share']:.0%}" for arm in version["arms"])
        words = [f"version {version['version']}", decision.replace("_", " "), served]
        label = ", ".join(filter(None, words))
        dot = element("circle", cx=x, cy=y, r=14, class_=f"node verdict-{version['decision'] or 'none'}")
        ring = element("circle", cx=x, cy=y, r=18, class_="served") if version["arms"] else Markup("")
        number = text(x, y + 4, str(version["version"]), "node-number", "middle")
        parts.append(link(f"/version?version={version['version']}", label, ring, dot, number))
    width = 2 * MARGIN + STEP * max(0, len(versions) - 1)
    height, label = 2 * MARGIN + LANE * (lanes - 1), f"the lineage of {len(versions)} versions"
    return drawing(width, height, label, *parts, class_="graph")


def interval(own: Mapping[str, Any], parent: Mapping[str, Any] | None) -> Markup:
    """Return a share between 0 and 1 with its interval, above the parent's."""
    parts = [line(6, HEIGHT - 4, WIDTH - 6, HEIGHT - 4, "grid")]
    parts += [line(_x(at), HEIGHT - 7, _x(at), HEIGHT - 4, "grid") for at in (0.0, 0.5, 1.0)]
    for score, y, name in ((own, 9.0, "own"), (parent, 20.0, "parent")):
        if score is not None:
            parts.append(line(_x(score["low"]), y, _x(score["high"]), y, f"interval {name}"))
            parts.append(element("circle", cx=_x(score["solve"]), cy=y, r=4, class_=f"estimate {name}"))
    label = f"{own['solve']:.0%}, between {own['low']:.0%} and {own['high']:.0%}"
    if parent is not None:
        label += (
            f"; the one before {parent['solve']:.0%}, between {parent['low']:.0%} and {parent['high']:.0%}"
        )
    return drawing(WIDTH, HEIGHT, label, *parts)


def _x(share: float) -> float:
    return 6 + (WIDTH - 12) * min(1.0, max(0.0, share))
