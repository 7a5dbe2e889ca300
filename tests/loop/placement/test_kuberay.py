"""Covers recipes/kuberay: its files agree with each other, with the run that they start and its command."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ostinato import __version__, cli
from ostinato.config import load
from ostinato.loop.config import RunConfig, check
from ostinato.loop.placement.config import Needs
from ostinato.loop.resources import standing

ROOT = Path(__file__).parents[3]
FILES = ROOT / "recipes" / "kuberay"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    text: dict[str, Any] = yaml.safe_load((FILES / "cluster.yaml").read_text())
    return text


def pods(cluster: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Return how many pods of each group there are, and what they are like."""
    groups = [(1, cluster["spec"]["headGroupSpec"])]
    groups += [(group["replicas"], group) for group in cluster["spec"]["workerGroupSpecs"]]
    return [(count, group["template"]["spec"]) for count, group in groups]


def test_every_pod_has_the_image_that_the_dockerfile_makes(cluster: dict[str, Any]) -> None:
    dockerfile = (FILES / "Dockerfile").read_text()
    built = re.search(r"docker build --file (\S+) --tag (\S+)", dockerfile)
    assert built is not None and (ROOT / built[1]) == FILES / "Dockerfile"
    assert {pod["containers"][0]["image"] for _, pod in pods(cluster)} == {built[2]}
    assert built[2].endswith(f":{__version__}")
    ray = re.search(r"FROM rayproject/ray:([\d.]+)-py311", dockerfile)
    assert ray is not None and ray[1] == cluster["spec"]["rayVersion"]
    extras = re.search(r"ostinato\[([\w,]+)\]'", dockerfile)
    assert extras is not None and {"ray", "postgres"} <= set(extras[1].split(",")) <= set(EXTRAS)


def test_all_pods_see_the_run_folder_and_the_head_has_the_password(cluster: dict[str, Any]) -> None:
    job = yaml.safe_load((FILES / "job.yaml").read_text())
    program, *words = shlex.split(job["spec"]["entrypoint"])
    options = cli.whole_parser().parse_args(words)
    assert program == "ostinato" and options.file.name == "run.toml"
    for _, pod in pods(cluster):
        (mount,), (volume,) = pod["containers"][0]["volumeMounts"], pod["volumes"]
        assert options.directory.is_relative_to(mount["mountPath"])
        assert options.file.is_relative_to(mount["mountPath"]) and mount["name"] == volume["name"]
    (variable,) = pods(cluster)[0][1]["containers"][0]["env"]
    assert variable["name"] == "PGPASSWORD" and "secretKeyRef" in variable["valueFrom"]
    assert job["spec"]["clusterSelector"]["ray.io/cluster"] == cluster["metadata"]["name"]


def test_the_run_fits_on_the_cluster(cluster: dict[str, Any]) -> None:
    config = load(RunConfig, FILES / "run.toml")
    check(config)
    assert config.placement.kind == "ray" and not config.store.on_one_machine
    wanted = [config.placement.resources.get(kind, Needs()) for kind in standing(config)]
    there = [(count, pod["containers"][0]["resources"]["requests"]) for count, pod in pods(cluster)]
    assert sum(each.cpus for each in wanted) <= sum(count * float(has["cpu"]) for count, has in there)
    gpus = sum(count * int(has.get("nvidia.com/gpu", 0)) for count, has in there)
    assert sum(each.gpus for each in wanted) == gpus
