"""Accelerators, models and regions by name."""

from pathlib import Path

import pytest

from ostinato_lab.planner.costs import PlanError
from ostinato_lab.planner.hardware import models, read_gpus, read_model, read_regions


def test_known_names_are_read() -> None:
    kind, count = read_gpus("h100:512")
    assert (kind.name, count) == ("h100", 512)
    assert read_regions("us:100,eu:40")[1].bytes_per_s == 5e9
    assert {read_model(name).name for name in models()} == set(models())


def test_a_model_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[model]\nweights = 7e9\nactive = 7e9\nserving_bytes = 2.0\n")
    assert read_model(str(path)).weights == 7e9
    path.write_text("[model]\nweights = 7e9\n")
    with pytest.raises(PlanError, match="active, serving_bytes, weights"):
        read_model(str(path))
    with pytest.raises(PlanError, match="no such file"):
        read_model(str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("text", "said"),
    [("a100:8", "h100, h200"), ("h100", "h100:512"), ("h100:1", "2 at least"), ("h100:x", "h100:512")],
)
def test_unknown_hardware_is_named_with_what_exists(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        read_gpus(text)


@pytest.mark.parametrize("text", ["us", "us:0", "us:inf", "us:x", ":10", "us:1,us:2"])
def test_regions_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(PlanError, match="--regions"):
        read_regions(text)
