"""What a cluster refuses is said, and where.

Covers sandbox/foreign/agent_sandbox.py and sandbox/foreign/engine.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox.foreign.cluster import AgentSandboxCluster

from ostinato.sandbox import Backend, SandboxError, Spec
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.foreign import settings

pytest.importorskip("k8s_agent_sandbox", reason="not installed: pip install 'ostinato[agent-sandbox]'")


@pytest.fixture
def cluster(agent_sandbox_server: tuple[AgentSandboxCluster, str]) -> AgentSandboxCluster:
    return agent_sandbox_server[0]


@pytest.fixture
def variables(agent_sandbox_settings: dict[str, str]) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in agent_sandbox_settings.items():
            patch.setenv(name, value)
        yield patch


async def test_a_claim_is_made_and_deleted(
    variables: pytest.MonkeyPatch, cluster: AgentSandboxCluster, repo: Path
) -> None:
    backend = await choose_backend("agent-sandbox")
    assert not cluster.claims
    sandbox = await backend.create(Spec(repo=repo))
    assert len(cluster.claims) == 1
    await backend.aclose()
    assert not cluster.claims
    with pytest.raises(SandboxError, match="destroyed"):
        await sandbox.exec("true")


async def refusal(wanted: str) -> None:
    with pytest.raises(SandboxError, match=wanted) as raised:
        await choose_backend("agent-sandbox")
    assert settings.POOL in str(raised.value)


async def test_what_is_missing_is_named(variables: pytest.MonkeyPatch, cluster: AgentSandboxCluster) -> None:
    variables.setenv(settings.POOL, "absent")
    await refusal("no sandbox from the pool 'absent' in 'default': SandboxWarmPoolNotFoundError")
    assert not cluster.claims
    variables.delenv(settings.POOL)
    await refusal("no pool of agent-sandbox is named")


async def test_a_wrong_token_is_refused(variables: pytest.MonkeyPatch, cluster: AgentSandboxCluster) -> None:
    variables.setattr(cluster, "token", "another")
    await refusal("the Kubernetes API refused: 401")


async def test_a_runtime_that_does_not_respond_is_no_failure_of_a_session(
    variables: pytest.MonkeyPatch, cluster: AgentSandboxCluster, repo: Path
) -> None:
    backend: Backend = await choose_backend("agent-sandbox")
    sandbox = await backend.create(Spec(repo=repo))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "runtime", False)
        with pytest.raises(SandboxError, match="status 502"):
            await sandbox.changes()
    await backend.aclose()
