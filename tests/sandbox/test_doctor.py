"""The doctor tries everything, and reports missing abilities with advice.

Covers sandbox/doctor.py.
"""

import json

import pytest

from ostinato import cli
from ostinato.sandbox import Backend, SandboxError, choose, doctor
from ostinato.sandbox.linux import cgroup, landlock


async def _broken(_: object) -> Backend:
    raise SandboxError("no such engine here")


def test_every_line_comes_from_something_that_ran(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = choose.BackendKind(name="broken", make=_broken, advice="install 'ostinato[engine]'")
    monkeypatch.setattr(doctor, "KINDS", {"process": choose.KINDS["process"], "broken": broken})
    monkeypatch.setattr(cgroup, "usable", lambda: None)
    assert cli.main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = {each["name"]: each for each in told["findings"]}
    assert found["process"]["works"] and any("network" in lost for lost in found["process"]["lost"])
    assert not found["broken"]["works"]
    assert (found["broken"]["detail"], found["broken"]["advice"]) == (
        "no such engine here",
        "install 'ostinato[engine]'",
    )
    assert "delegate" in found["cgroups"]["advice"]


def test_the_table_is_for_people(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    broken = choose.BackendKind(name="broken", make=_broken, advice="install 'ostinato[engine]'")
    monkeypatch.setattr(doctor, "KINDS", {"broken": broken})
    assert cli.main(["doctor"]) == 1, "no backend works"
    assert "do: install 'ostinato[engine]'" in capsys.readouterr().out


def test_missing_restrictions_of_a_kernel_are_reported() -> None:
    if landlock.abi() == 0:
        pytest.skip("this kernel has no Landlock")
    assert landlock.probe() == landlock.abi()
    assert landlock.missing(0) and not landlock.missing(6)
