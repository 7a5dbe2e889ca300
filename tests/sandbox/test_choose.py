"""The choice of a backend by its settings.

Covers sandbox/config.py.
"""

import os

import pytest

from ostinato.sandbox import SandboxError
from ostinato.sandbox.backends.namespaces import launcher
from ostinato.sandbox.choose import choose_backend


async def test_a_backend_is_chosen_by_its_name() -> None:
    assert (await choose_backend("process")).name == "process"


async def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="choose auto, ns"):
        await choose_backend("chroot")


async def test_without_namespaces_auto_falls_back_and_logs_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # a zygote that cannot even import its module, as on a machine without it
    monkeypatch.setattr(launcher, "command_environment", lambda: {**os.environ, "PYTHONHOME": "/nowhere"})
    backend = await choose_backend("auto")
    assert backend.name == "process"
    assert "no sandbox boundary" in caplog.text
    with pytest.raises(SandboxError, match="use the process backend"):
        await choose_backend("ns")
