"""A checkpoint in Hugging Face layout goes through every stage of a run that `ostinato init` wrote for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.foreign import checkpoint

pytestmark = pytest.mark.slow
SMALL = (
    "engine.slots=16",
    "tasks.held_out={seeds = 3, larger = 1}",
    "harness.max_turns=4",
    "teach.lessons=3",
    "teach.steps=10",
    "practice.group_size=2",
    "practice.groups_at_once=2",
    "practice.ready_ahead=2",
    "refine.versions=2",
    "refine.groups=2",
    'refine.policy.correction="one_sided"',
    'refine.figures_to=["lines"]',
    "bench.passes=1",
    "bench.claim=the circle turns",
    "live.developers=2",
    "live.canary_sessions=2",
    "live.sessions=2",
    "live.ab_sessions=4",
    "live.versions=1",
    'schedule.stages=["teach", "before", "practice", "after", "cycle"]',
)
"""A few of everything."""
ZERO = ("turns_unaccounted", "prompts_unended", "prompts_trained_twice", "digest_mismatches")


def ostinato(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ostinato", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.deep
def test_a_tiny_llama_is_taught_practises_is_measured_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "llama.toml"
    made = ostinato("init", str(file), "--model", str(checkpoint(tmp_path / "llama", "Llama")))
    assert made.returncode == 0, made.stderr
    examples = Path(__file__).parents[2] / "examples"
    plugins = [str(examples / name) for name in ("correction.py", "live_fact.py", "outlet.py")]
    file.write_text(f"use = {json.dumps(plugins)}\n{file.read_text()}")
    folder, settings = tmp_path / "run", [word for setting in SMALL for word in ("--set", setting)]
    settings += ["--set", f"live.reward='{examples / 'live_fact.toml'}'"]
    named = [word for plugin in plugins for word in ("--use", plugin)]
    done = ostinato(*named, "run", str(file), "--directory", str(folder), "--json", *settings)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert {name: report["integrity"][name] for name in ZERO} == dict.fromkeys(ZERO, 0)
    assert report["teach"]["sessions"] == 6 and report["practice"]["version"] == 2
    assert {when: set(scores) for when, scores in report["held_out"].items()} == {
        "before": {"seeds", "larger"},
        "after": {"seeds", "larger"},
    }
    assert (report["claim"]["number"], report["claim"]["tasks"]) == (1, 4)
    (cycle,) = report["cycles"]
    assert cycle["live"]["sessions"] == 2 and cycle["gate"]["decision"] in {"hold", "roll_back", "admit"}
    figures = (folder / "learner-practice" / "figures.jsonl").read_text()
    assert len(figures.splitlines()) == 2, "the outlet of a plug-in"
    assert (folder / "practice.png").exists() and (folder / "solved.png").exists()


def test_a_file_that_cannot_be_run_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("[teach]\nstep = 3\n")
    unknown = ostinato("run", str(file), "--directory", str(tmp_path / "run"))
    assert unknown.returncode == 2 and "did you mean 'teach.steps'" in unknown.stderr
    file.write_text(f"[model]\npath = '{tmp_path}'\n")
    foreign = ostinato("run", str(file), "--directory", str(tmp_path / "run"))
    assert foreign.returncode == 2 and "which is no checkpoint: config.json is missing" in foreign.stderr
    assert not (tmp_path / "run").exists()
