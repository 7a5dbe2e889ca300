"""The objective of a plug-in in a learner's own process, by the examples of `docs/plugins.md`.

Covers train/opened.py, train/objective/group.py's door and the manifest's `made_with`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.train.test_learner import Bench, MakeSample, checkpoint, command

from ostinato.sync import Subscriber

__all__ = ["checkpoint"]
EXAMPLES = Path(__file__).parents[2] / "examples"
PARENT = """
import subprocess, sys, ostinato
for name in ("loss", "baseline", "trainer"):
    ostinato.use(f"{name}.py")
if sys.argv[1] == "change":
    open("loss.py", "a").write("# another")
sys.exit(subprocess.run(sys.argv[2:]).returncode)
"""


def learn(bench: Bench, until: int, *more: str, change: bool = False) -> subprocess.CompletedProcess[str]:
    """A learner whose parent has loaded the plug-ins, and may have changed one since."""
    words = [*command(bench, until), "--loss", "clipped", "--baseline", "median", "--trainer", "still_words"]
    parent = [sys.executable, "-c", PARENT, "change" if change else "keep", *words, *more]
    home = {**os.environ, "XDG_CONFIG_HOME": str(bench.directory / "config")}
    return subprocess.run(parent, cwd=bench.directory, env=home, capture_output=True, text=True, check=False)


@pytest.fixture
def bench(tmp_path: Path, checkpoint: Path, make_sample: MakeSample) -> Bench:
    for name in ("loss", "baseline", "trainer"):
        (tmp_path / f"{name}.py").write_bytes((EXAMPLES / f"{name}.py").read_bytes())
    return Bench(tmp_path, checkpoint, make_sample)


@pytest.mark.slow
def test_a_loss_a_baseline_and_a_trainer_of_plugins_make_versions_that_name_them(bench: Bench) -> None:
    for _ in range(3):
        bench.offer(0.5, -0.5)
    first = learn(bench, 1)
    assert first.returncode == 0, first.stderr
    changed = learn(bench, 2, change=True)
    assert changed.returncode == 2 and "was changed while what uses it is running" in changed.stderr
    (bench.directory / "loss.py").write_bytes((EXAMPLES / "loss.py").read_bytes())
    again = learn(bench, 3)
    assert again.returncode == 0, again.stderr
    reader = Subscriber(bench.objects)
    made_with = [reader.manifest(version).made_with for version in range(4)]
    assert len(set(made_with)) == 1
    assert [each.split()[:2] for each in made_with[0]] == [
        ["loss", "clipped"], ["baseline", "median"], ["trainer", "still_words"],
    ]  # fmt: skip
    before, after = (reader.fetch(version) for version in (0, 3))
    still = {name for name in before if torch.equal(before[name], after[name])}
    assert "model.embed_tokens.weight" in still and still != set(before)


def test_a_trainer_that_fails_is_one_line(bench: Bench) -> None:
    file = bench.directory / "trainer.py"
    file.write_text(file.read_text().replace("    decoder, _", "    raise OSError('full')\n    decoder, _"))
    done = learn(bench, 1)
    assert done.returncode == 1 and "the trainer still_words failed at" in done.stderr
    assert "trainer.py line 17, OSError: full" in done.stderr and "Traceback" not in done.stderr
