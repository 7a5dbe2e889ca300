"""The figures as event files, read back by the library itself; without the package one plain line."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.types.test_step import FIGURES

from ostinato.train.base import MissingPackageError
from ostinato.train.figures.tensorboard import EventFiles


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_each_figure_is_a_scalar_by_version_and_a_version_made_again_counts_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    killed = EventFiles(tmp_path)
    for version in (1, 2, 3):
        killed.add(replace(FIGURES, version=version, loss=float(version)))
    killed.close()
    again = EventFiles(tmp_path)
    for version in (3, 4):
        again.add(replace(FIGURES, version=version, loss=10.0 * version))
    again.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert [(e.step, e.value) for e in read.Scalars("loss")] == [(1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0)]
    assert set(read.Tags()["scalars"]) == FIGURES.flat().keys()
    assert read.Scalars("mismatch/p99")[0].value == pytest.approx(FIGURES.flat()["mismatch/p99"])


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'ostinato\[tensorboard\]'"):
        EventFiles(tmp_path)
    assert not list(tmp_path.iterdir())
