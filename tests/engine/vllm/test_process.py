"""A vLLM that does not come up: its first error is the reason, however many processes report it later."""

import asyncio
import sys
from pathlib import Path

import pytest

from ostinato.engine.base import EngineError
from ostinato.engine.vllm.process import Launch, VllmServer

REPORTED = """\
INFO 11-26 13:27:39 [api_server.py:123] vLLM API server
(EngineCore pid=2690) ERROR 11-26 13:28:05 [core.py:1330] Traceback (most recent call last):
(EngineCore pid=2690) ERROR 11-26 13:28:05 [core.py:1330] ModuleNotFoundError: No module named 'flashinfer'
(EngineCore pid=2690) ModuleNotFoundError: No module named 'flashinfer'
(APIServer pid=2589)     raise RuntimeError(
(APIServer pid=2589) RuntimeError: Engine core initialization failed. See root cause above.
"""


async def refusal(folder: Path, output: str) -> str:
    """What the start says of a server that ends after this output."""
    (folder / "output").write_text(output)
    program = folder / "vllm"
    program.write_text(f"#!/bin/sh\ncat {folder / 'output'}\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(EngineError) as refused:
        await VllmServer.start(Launch(model=folder, logs=folder / "logs", python=str(program)))
    return str(refused.value)


async def test_the_first_error_is_the_reason(tmp_path: Path) -> None:
    said = await refusal(tmp_path, REPORTED)
    assert said == "vLLM did not start (it ended with 1): ModuleNotFoundError: No module named 'flashinfer'"


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "(EngineCore pid=7) ValueError: Free memory on device is less than desired",
    ],
)
async def test_an_error_of_any_process_is_found(tmp_path: Path, line: str) -> None:
    assert (await refusal(tmp_path, f"starting\n{line}\nlast\n")).endswith(line.partition(") ")[2] or line)


async def test_without_an_error_the_last_lines_are_shown(tmp_path: Path) -> None:
    assert (await refusal(tmp_path, "out of luck\n")).endswith("out of luck\n")


async def test_a_server_that_went_away_is_reported_in_words(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "", start_new_session=True)
    server = VllmServer(process, "http://127.0.0.1:9", tmp_path / "vllm.log")
    with pytest.raises(EngineError, match=r"vLLM, /pause: it does not respond \(Cannot connect") as away:
        await server.post("/pause")
    await server.close()
    assert "Error(" not in str(away.value) and str(away.value).endswith("start the engine again")
