"""The stages of the check that a change runs. Covers tests/stages.py."""

import re

import pytest
from tests.arrows import ROOT, modules
from tests.stages import PASSED, STAGES, Stage

WITH_ROOMS = [stage for stage in STAGES if not stage.always]


def touched(*changed: str) -> set[str]:
    return {stage.target for stage in WITH_ROOMS if stage.is_touched_by(changed)}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("docs/results.md", set()),
        ("src/ostinato/dashboard/static/dashboard.css", {"test-browser"}),
        ("src/ostinato/engine/vllm/worker.py", {"test-vllm"}),
        ("src/ostinato/train/policy.py", {"real-short"}),
        ("tests/real/short.toml", {"real-short"}),
        ("src/ostinato/loop/placement/ray.py", {"test-ray"}),
        ("src/ostinato/gateway/app.py", {"test-clients"}),
    ],
)
def test_a_change_runs_the_stages_whose_rooms_import_it(changed: str, expected: set[str]) -> None:
    assert touched(changed) == expected


def test_what_every_room_stands_on_runs_every_stage_that_imports_it() -> None:
    assert touched("constraints.txt") == touched("tests/provision.py") == {s.target for s in WITH_ROOMS}
    assert touched("src/ostinato/types/session.py") >= {
        "test-clients",
        "test-vllm",
        "real-short",
        "test-sandboxes",
    }


@pytest.mark.parametrize("stage", WITH_ROOMS, ids=lambda stage: stage.target)
def test_every_room_of_a_stage_is_there(stage: Stage) -> None:
    assert not [
        room for room in stage.rooms if not any(f"{name}.".startswith(f"{room}.") for name in modules())
    ]


def test_every_stage_is_a_target() -> None:
    targets = set(re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets = {word for names in targets for word in names.split()}
    assert {stage.target for stage in STAGES} <= targets


def test_the_commit_on_which_everything_passed_is_a_commit() -> None:
    if not PASSED.exists():
        pytest.skip("nothing is known to have passed: every stage runs")
    assert re.fullmatch(r"[0-9a-f]{40}\n", PASSED.read_text())
