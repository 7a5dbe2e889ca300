"""The table [placement]: what it refuses, and the resources by Ray's names."""

from pathlib import Path

import pytest

from ostinato.config import ConfigError, load
from ostinato.loop.config import RunConfig
from ostinato.loop.placement.config import Needs


def test_resources_are_read_by_the_kind_of_service(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        '[placement]\nkind = "ray"\naddress = "10.0.0.1:6379"\n'
        'resources = {engine = {gpus = 1.0, labels = {region = "north"}, custom = {nvme = 2}}}\n'
    )
    placement = load(RunConfig, file).placement
    assert placement.resources["engine"] == Needs(gpus=1.0, labels={"region": "north"}, custom={"nvme": 2.0})
    assert placement.resources["engine"].bundle == {"CPU": 1.0, "GPU": 1.0, "nvme": 2.0}


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ('kind = "slurm"', "expected one of 'local', 'ray'"),
        ('nodes = 3\nkind = "ray"', "unknown key 'placement.nodes'"),
        (
            'kind = "ray"\nresources = {dashboard = {cpus = 1.0}}',
            "names 'dashboard': the services",
        ),
        ('kind = "ray"\nresources = {engine = {cpu = 1.0}}', "unknown key 'cpu'"),
        ('kind = "ray"\nresources = {engine = {gpus = -1.0}}', "no resource is below 0"),
        ("resources = {engine = {gpus = 1.0}}", "address and resources are of a cluster"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, table: str, reason: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f"[placement]\n{table}\n")
    with pytest.raises(ConfigError, match=reason):
        load(RunConfig, file)
