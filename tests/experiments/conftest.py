"""What the studies that run `ostinato run` share in their tests."""

from collections.abc import Mapping
from typing import Any

import pytest

TINY = {
    "model.shape.hidden_size": 32,
    "model.shape.layers": 2,
    "model.shape.kv_heads": 1,
    "model.shape.heads": 1,
    "tasks.held_out": {"seeds": 2},
    "harness.max_turns": 3,
    "teach.lessons": 3,
    "teach.demonstrations": 2,
    "teach.steps": 4,
    "practice.group_size": 4,
    "refine.versions": 2,
    "refine.groups": 1,
}


@pytest.fixture
def tiny_run() -> Mapping[str, Any]:
    """Settings with which a run of a study takes seconds."""
    return TINY
