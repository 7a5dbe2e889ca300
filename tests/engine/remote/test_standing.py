"""What a foreign engine serves: trained versions reach it, and what it serves instead is noticed.

Covers engine/remote/standing.py, engine/remote/release.py, engine/remote/probe.py, engine/remote/adapter.py
and engine/vllm/calls.py.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzz.little_vllm import NAME, LittleVllm, little_vllm
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.toolbox import decoder, request
from torch import Tensor

from ostinato.engine.base import EngineError, LoadRefusedError
from ostinato.engine.config import EngineServerConfig, ReleaseWay
from ostinato.engine.remote.adapter import NoAdapterError, factors
from ostinato.engine.remote.engine import RemoteEngine
from ostinato.model.checkpoint import load, save
from ostinato.model.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["calc.py"], 265)
SIZES = {"vocab_size": 270, "hidden_size": 64, "heads": 2, "kv_heads": 1, "head_dim": 32}
WIDE: dict[str, Any] = {**SIZES, "intermediate_size": 96}
QUERY = "model.layers.0.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    save(directory, decoder(1, **WIDE), TOKENIZER, version=0)
    return directory


def trained(checkpoint: Path, version: int, rank: int = 2) -> dict[str, Tensor]:
    """The weights of a version: a change of this rank in every linear layer."""
    torch.manual_seed(version)
    weights = load(checkpoint)[0].state_dict()
    for name, tensor in weights.items():
        if name.endswith("proj.weight"):
            high, low = torch.randn(tensor.shape[0], rank), torch.randn(rank, tensor.shape[1])
            weights[name] = tensor + 0.02 * high @ low
    return weights


async def connect(
    url: str, checkpoint: Path, folder: Path, release: ReleaseWay = "adapter", command: tuple[str, ...] = ()
) -> RemoteEngine:
    config = EngineServerConfig(
        checkpoint=checkpoint,
        objects="objects",
        backend="remote",
        remote=url,
        release=release,
        on_release=command,
        released=folder / "released",
        label="team",
        max_len=64,
    )
    return await RemoteEngine.connect(url, TOKENIZER, config=config)


@asynccontextmanager
async def connected(
    checkpoint: Path,
    folder: Path,
    release: ReleaseWay,
    command: tuple[str, ...] = (),
    *,
    dev_mode: bool = False,
) -> AsyncIterator[tuple[RemoteEngine, LittleVllm]]:
    async with little_vllm(checkpoint, dev_mode=dev_mode) as (url, little):
        engine = await connect(url, checkpoint, folder, release, command)
        try:
            yield engine, little
        finally:
            await engine.aclose()


async def scored(engine: RemoteEngine, weights: dict[str, Tensor], seed: int = 5) -> None:
    """Assert that a completion has the log-probabilities of these weights."""
    asked = request(seed)
    got = await engine.generate(asked)
    served = decoder(1, **WIDE)
    served.load_state_dict(weights)
    ids = torch.tensor([asked.prompt_ids + got.ids])
    with torch.no_grad():
        rows = torch.log_softmax(served(ids)[0][0, len(asked.prompt_ids) - 1 : -1], -1)
    wanted = rows.gather(1, torch.tensor(got.ids)[:, None])[:, 0]
    assert (wanted - torch.tensor(got.logprobs)).abs().max() < 1e-3
    assert set(got.versions) == {engine.version}


async def test_versions_are_adapters_under_names_of_their_own(checkpoint: Path, tmp_path: Path) -> None:
    async with connected(checkpoint, tmp_path, "adapter") as (engine, little):
        await engine.swap(0, load(checkpoint)[0].state_dict())
        assert little.roots == {}, "the first version is the model itself"
        for version in (3, 4):
            await engine.swap(version, trained(checkpoint, version))
            await scored(engine, trained(checkpoint, version))
        assert list(little.roots) == ["team@3", "team@4"] and little.asked[-1] == "team@4"
        again = await connect(little.url, checkpoint, tmp_path)
        await again.swap(3, trained(checkpoint, 3))
        await scored(again, trained(checkpoint, 3))
        assert little.loads == 2, "another arm uses what is loaded"
        await again.aclose()


async def test_adapters_that_a_restart_loses_are_loaded_again(checkpoint: Path, tmp_path: Path) -> None:
    async with connected(checkpoint, tmp_path, "adapter") as (engine, little):
        await engine.swap(3, trained(checkpoint, 3))
        little.restart()
        with pytest.raises(EngineError, match="does not exist"):
            await engine.generate(request(5))
        await scored(engine, trained(checkpoint, 3))
        assert little.loads == 2
        little.restart()
        little.load_adapters = False
        with pytest.raises(EngineError, match=r"version 3 is held: .*LoRA is not enabled.*--enable-lora"):
            await engine.verify()
        with pytest.raises(EngineError, match="version 3 is held"):
            await engine.generate(request(5))
        assert engine.stats()["held"] == 1.0 and little.asked.count(NAME) <= 2, "no other model answers"
        little.load_adapters = True
        await scored(engine, trained(checkpoint, 3))
        assert engine.stats()["held"] == 0.0


@pytest.mark.parametrize("fault", ["ignored", "doubled", "another"])
async def test_an_adapter_that_is_not_the_version_is_refused(
    checkpoint: Path, tmp_path: Path, fault: str
) -> None:
    async with connected(checkpoint, tmp_path, "adapter") as (engine, little):
        if fault == "another":
            little.start = {name: t + 0.2 * torch.randn_like(t) for name, t in little.start.items()}
        little.scale = {"ignored": 0.0, "doubled": 2.0, "another": 1.0}[fault]
        with pytest.raises(LoadRefusedError, match=r"version 3 was refused: .*does not show: its log-prob"):
            await engine.swap(3, trained(checkpoint, 3))
        assert engine.version == 0
        little.restart()


async def test_a_model_that_is_changed_under_its_name_is_held(checkpoint: Path, tmp_path: Path) -> None:
    async with little_vllm(checkpoint) as (url, little):
        engine = await RemoteEngine.connect(url, TOKENIZER, version=7)
        little.put(NAME, decoder(2, **WIDE).state_dict())
        with pytest.raises(EngineError, match=r"version 7 is held: .* from those at the start: it serves"):
            await engine.verify()
        with pytest.raises(EngineError, match="version 7 is held"):
            await engine.generate(request(5))
        little.restart()
        assert (await engine.generate(request(5))).versions[0] == 7
        await engine.aclose()


async def test_an_engine_with_other_weights_than_the_checkpoints_is_refused(
    checkpoint: Path, tmp_path: Path
) -> None:
    save(tmp_path / "other", decoder(2, **WIDE), TOKENIZER, version=0)
    with pytest.raises(EngineError, match="serves other weights than the checkpoint's"):
        async with little_vllm(tmp_path / "other") as (url, _):
            await connect(url, checkpoint, tmp_path)


async def test_whole_weights_reach_workers_that_were_started_for_it(checkpoint: Path, tmp_path: Path) -> None:
    async with connected(checkpoint, tmp_path, "weights", dev_mode=True) as (engine, little):
        for version in (2, 5):
            await engine.swap(version, trained(checkpoint, version, rank=40))
            await scored(engine, trained(checkpoint, version, rank=40))
        little.restart()
        await engine.verify()
        await scored(engine, trained(checkpoint, 5, rank=40))
        assert little.loads == 3, "what a restart lost is loaded again"
    assert not [*(tmp_path / "released").iterdir()], "the files go with the engine server"


async def test_an_engine_that_was_not_started_for_weights_is_refused(
    checkpoint: Path, tmp_path: Path
) -> None:
    async with connected(checkpoint, tmp_path, "weights") as (engine, _):
        with pytest.raises(
            LoadRefusedError, match=r"has no /pause, .*VLLM_SERVER_DEV_MODE=1 .*worker-extension"
        ):
            await engine.swap(2, trained(checkpoint, 2))


async def test_a_command_of_the_team_releases(checkpoint: Path, tmp_path: Path) -> None:
    """The command posts the files where it knows how, here as the workers' routes do."""
    script = tmp_path / "load.py"
    script.write_text(
        "import json, sys, urllib.request as u\n"
        "folder, version, url = sys.argv[1:]\n"
        "body = json.dumps({'method': 'version_load', 'args': [folder]}).encode()\n"
        "u.urlopen(u.Request(url + '/collective_rpc', body)).read()\n"
    )
    command = (sys.executable, str(script))
    async with connected(checkpoint, tmp_path, "hook", command, dev_mode=True) as (engine, little):
        await engine.swap(2, trained(checkpoint, 2, rank=40))
        await scored(engine, trained(checkpoint, 2, rank=40))
        little.restart()
        await engine.verify()
        await scored(engine, trained(checkpoint, 2, rank=40))
    async with connected(checkpoint, tmp_path, "hook", ("false",)) as (engine, _):
        with pytest.raises(LoadRefusedError, match=r"on_release ended with status 1: false /.*team@2 2 http"):
            await engine.swap(2, trained(checkpoint, 2))


async def test_weights_that_no_adapter_gives_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    async with connected(checkpoint, tmp_path, "adapter") as (engine, _):
        weights = trained(checkpoint, 2)
        weights["model.norm.weight"] = weights["model.norm.weight"] + 0.1
        with pytest.raises(LoadRefusedError, match=r"model\.norm\.weight was trained.* lora_rank"):
            await engine.swap(2, weights)


@given(st.integers(0, 10_000), st.integers(1, 20), st.sampled_from([1e-4, 1e-2, 1.0]))
def test_the_factors_of_a_low_rank_change_give_it_back(seed: int, rank: int, size: float) -> None:
    torch.manual_seed(seed)
    base = torch.randn(48, 40)
    new = base + size * torch.randn(48, rank) @ torch.randn(rank, 40)
    low, high = factors("w", new - base, 8 * 1.2e-7 * float(new.abs().max()))
    assert low.shape[0] <= {True: 8, False: 32}[rank <= 8]
    assert (base + high @ low - new).abs().max() <= 2e-5 * new.abs().max()


def test_a_change_of_full_rank_is_refused() -> None:
    torch.manual_seed(0)
    with pytest.raises(NoAdapterError, match="of no rank up to 256"):
        factors("w", torch.randn(600, 600), 1e-6)
