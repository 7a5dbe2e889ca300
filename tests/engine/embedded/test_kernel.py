"""A machine without a working compiler samples with torch; elsewhere the kernel is compiled once."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.toolbox import NEEDS_KERNEL, decoder, request

from ostinato.engine.embedded.engine import EmbeddedEngine, fastest
from ostinato.engine.embedded.forward import TorchForward
from ostinato.engine.embedded.kernel import KernelError, library
from ostinato.engine.embedded.slots import SlotTable


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide earlier compilations."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library.cache_clear()
    yield
    library.cache_clear()


@NEEDS_KERNEL
def test_it_is_compiled_once(tmp_path: Path) -> None:
    library()
    (made,) = (tmp_path / "cache" / "ostinato").iterdir()
    before = made.stat().st_mtime_ns
    library.cache_clear()
    library()
    assert [path.stat().st_mtime_ns for path in made.parent.iterdir()] == [before]


@pytest.mark.parametrize(
    ("compiler", "why"), [("/nowhere/cc", "does not run"), ("false", "failed"), ("", "no C compiler")]
)
def test_without_a_compiler_the_error_says_why(
    compiler: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler)
    if not compiler:
        monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(KernelError, match=why):
        library()


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("CC", "cc")
    with pytest.raises(KernelError, match="no place to keep the kernel"):
        library()


@NEEDS_KERNEL
def test_a_compiler_without_threads_makes_a_kernel_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *-fopenmp*) exit 1;; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert library().padded_width(1) >= 1


async def test_the_engine_goes_on_with_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", "false")
    model = decoder()
    with caplog.at_level(logging.WARNING):
        assert isinstance(fastest(model, SlotTable(model.config, 2, 16)), TorchForward)
    assert "sampling with torch" in caplog.text
    assert len((await EmbeddedEngine(model, version=1, max_len=128).generate(request(1))).ids) == 12
