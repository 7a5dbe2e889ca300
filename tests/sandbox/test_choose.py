"""The choice of a backend by its settings.

Covers sandbox/config.py.
"""

import pytest

from ostinato.sandbox.backends.namespaces import launcher
from ostinato.sandbox.base import MachineRefusesError, SandboxError
from ostinato.sandbox.choose import choose_backend


async def test_a_backend_is_chosen_by_its_name() -> None:
    assert (await choose_backend("process")).name == "process"


async def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="choose auto, ns"):
        await choose_backend("chroot")


REFUSED = """import errno, ostinato.sandbox.backends.namespaces.zygote as zygote
def refuse(self):
    raise OSError(errno.{}, "unshare: it was refused")
zygote.namespace_child.NamespaceConfinement.prepare = refuse
zygote.landlock_child.LandlockConfinement.prepare = refuse
zygote.main()"""


@pytest.mark.parametrize("reason", ["EPERM", "ENOSPC", "ENOSYS"])
async def test_where_the_kernel_refuses_auto_falls_back_and_logs_the_reason(
    reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(launcher, "_START", REFUSED.format(reason))
    backend = await choose_backend("auto")
    assert backend.name == "process"
    assert "no sandbox boundary" in caplog.text and "it was refused" in caplog.text
    with pytest.raises(MachineRefusesError, match="name a weaker backend"):
        await choose_backend("ns")


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ("raise SystemExit('it cannot be imported')", "ended at its start"),
        (REFUSED.format("ENOMEM"), "it was refused"),
        (REFUSED.format("EMFILE"), "it was refused"),
    ],
)
async def test_no_other_failure_makes_the_sandbox_weaker(
    start: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "_START", start)
    with pytest.raises(SandboxError, match=reason) as caught:
        await choose_backend("auto")
    assert not isinstance(caught.value, MachineRefusesError)


async def test_a_missing_package_makes_no_sandbox_weaker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "find_spec", lambda name: None)
    for name in ("auto", "ns", "landlock"):
        with pytest.raises(SandboxError, match=r"needs the package pytest.*pip install .*practice"):
            await choose_backend(name)


async def test_a_child_that_the_kernel_refuses_counts_as_a_refusal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On Ubuntu a user namespace may be made, and nothing mounted in it."""
    start = REFUSED.replace("NamespaceConfinement.prepare", "rootfs.prepare").replace("(self)", "(*_)")
    monkeypatch.setattr(launcher, "_START", start.format("EACCES"))
    assert (await choose_backend("auto")).name == "process"
    assert "the sandbox was not created" in caplog.text
