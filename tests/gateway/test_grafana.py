"""The shipped dashboard for Grafana asks for what `/metrics` has, and for all of it.

Covers recipes/grafana.json, which was not opened in a Grafana.
"""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.store.builders import turn

from ostinato.gateway.metrics import Metrics
from ostinato.gateway.replicas import ReplicaState

FILE = Path(__file__).parents[2] / "recipes" / "grafana.json"


@pytest.fixture
def samples() -> dict[str, set[str]]:
    """Return the labels of each sample of a gateway in which everything has happened once."""
    metrics = Metrics(lambda: 1.0, lambda: {"http://127.0.0.1:1": ReplicaState(running=1, away=False)})
    metrics.replied({"type": "http", "path": "/v1/messages"}, 200, 0.01)
    metrics.recorded(replace(turn(0), untrainable="cut", broken="no call"), "messages", "root")
    metrics.telemetry("taken", 1)
    metrics.cancelled()
    families = text_string_to_metric_families(metrics.text().decode())
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def test_every_expression_names_samples_and_labels_of_the_gateway(samples: dict[str, set[str]]) -> None:
    panels = json.loads(FILE.read_text())["panels"]
    asked = set()
    for panel in panels:
        for expression, target in zip(expressions(panel), panel["targets"], strict=True):
            names = set(re.findall(r"ostinato_\w+", expression))
            assert names and names <= samples.keys(), expression
            labels = {label for name in names for label in samples[name]}
            groups = re.findall(r"by \(([\w, ]+)\)", expression)
            wanted = {label for group in groups for label in group.split(", ")}
            wanted |= set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert wanted <= labels, (expression, wanted - labels)
            asked |= {name.removesuffix("_bucket") for name in names}
    rest = {name for name in samples if not name.endswith(("_created", "_sum", "_count", "_bucket"))}
    assert asked >= rest, rest - asked


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads(FILE.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in itertools.combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
