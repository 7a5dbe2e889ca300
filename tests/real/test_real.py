"""SmolLM2 through the circle in its short form: taught, served, measured, two versions of practice swapped in
under traffic, and a report. `make real-short` installs the model and runs this.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.clients.install import PACKAGES
from tests.real import install

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(install.missing() is not None, reason=install.missing() or ""),
]
SHORT = Path(__file__).parent / "short.toml"
ZERO = ("turns_unaccounted", "prompts_unended", "prompts_trained_twice", "digest_mismatches")


def circle(directory: Path) -> dict[str, Any]:
    """Run the short form to its end, or what is left of it, and return its report."""
    command = [sys.executable, "-m", "ostinato", "run", str(SHORT), "--directory", str(directory), "--json"]
    done = subprocess.run(command, cwd=install.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return report


def test_the_short_form_passes_every_stage(tmp_path: Path) -> None:
    report = circle(tmp_path / "run")
    assert report["practice"]["version"] == 2 and report["practice"]["untrainable"] == 0
    assert report["held_out"]["after"].keys() == {"seeds", "families"}
    integrity = report["integrity"]
    assert {name: integrity[name] for name in ZERO} == dict.fromkeys(ZERO, 0)
    assert integrity["requests_failed_by_swap"] == 0 and integrity["swaps"] >= 1
    steps = [json.loads(line) for line in (tmp_path / "run/sft/sft.jsonl").read_text().splitlines()]
    assert steps[-1]["step"] == 4 and steps[-1]["loss"] < 1.2, "1.14 nats a token before the first step"
    assert (tmp_path / "run" / "report.md").exists() and (tmp_path / "run" / "practice.png").exists()


def test_somebody_elses_agent_is_recorded_so_that_the_trainer_finds_every_token_again() -> None:
    if (reason := PACKAGES["mini-swe-agent"].missing) is not None:
        pytest.skip(reason)
    options = ["--clients", "mini-swe-agent", "--pebbles", "1", "--patience", "60"]
    command = [sys.executable, "-m", "tests.real.agents", *options]
    done = subprocess.run(command, cwd=install.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])["mini-swe-agent"]
    assert found["tasks"] == 2 and found["turns"] >= 1
    # No session of a real agent may hold a turn that is neither trainable nor has its reason.
    reasons = sum(count for name, count in found.items() if name.startswith("not: "))
    assert found["trainable"] + reasons == found["turns"]
    assert found["tokens"] > 0 and found["difference"]["p99"] < 1e-3
