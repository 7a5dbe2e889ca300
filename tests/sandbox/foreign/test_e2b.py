"""Covers sandbox/foreign/e2b.py: what a server of E2B's protocol refuses is said, and where."""

import pytest

from ostinato.sandbox import SandboxError
from ostinato.sandbox.choose import choose_backend

pytest.importorskip("e2b", reason="e2b is not installed: pip install 'ostinato[e2b]'")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("E2B_API_KEY", "", "no key for E2B: set E2B_API_KEY"),
        ("E2B_API_KEY", "wrong", "AuthenticationException"),
        ("OSTINATO_E2B_TEMPLATE", "absent", "no sandbox of E2B from 'absent' at http://127.*no template"),
        ("E2B_API_URL", "http://127.0.0.1:1", "no sandbox of E2B from 'base' at http://127.0.0.1:1: "),
    ],
)
async def test_a_failed_start_says_what_and_where(
    monkeypatch: pytest.MonkeyPatch, e2b_settings: dict[str, str], name: str, value: str, said: str
) -> None:
    for variable, content in e2b_settings.items():
        monkeypatch.setenv(variable, content)
    monkeypatch.setenv(name, value)
    with pytest.raises(SandboxError, match=said):
        await choose_backend("e2b")
