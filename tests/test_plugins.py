"""The examples of `docs/plugins.md`, each used from an empty folder, and the names that `ostinato` promises.

Covers __init__.py and the doors of the rooms that it names.
"""

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import ostinato

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
USES = {
    "live_fact": """
o.use(str(folder / "live_fact.py"))
from ostinato.rewards.live.definition import LIVE, read_definition
definition = read_definition(folder / "live_fact.toml")
assert definition.hash() != replace(definition, parts={"kept": definition.parts["kept"]}).hash()
green = [signal(SignalKind.COMMENT, "ci: red", 102.0), signal(SignalKind.COMMENT, "ci: green", 103.0)]
parts = {part.name: part for part in definition.score("s", [turn()], green).parts}
assert parts["ci_green"].value == 0.5 and parts["ci_green"].evidence == (green[-1].id,)
""",
    "fault": """
o.use(str(folder / "fault.py"))
from ostinato.rewards.practice.definition import PracticeReward, read_practice_definition
reward = PracticeReward(read_practice_definition(folder / "fault.toml"), renderer())
turns = session((call("bash", command="db 'SELECT * FROM t'"), ["1"]), ("done", []))
scored = reward.score("s", turns, [signal(SignalKind.HIDDEN_TESTS)])
assert {part.name: part.value for part in scored.parts}["select_star"] == -0.2
""",
    "monitor": """
o.use(str(folder / "monitor.py"))
from ostinato.rewards.monitors.behaviour import BEHAVIOURS
wide, narrow = (o.Observed(session_id="s", arm="a", at=0.0, turns=(), signals=(), calls=[text])
                for text in ("DELETE FROM t;", "DELETE FROM t WHERE id = 1;"))
assert [BEHAVIOURS["sql_without_where"].read(each) for each in (wide, narrow)] == [1.0, 0.0]
""",
    "claim": """
o.use(str(folder / "claim.py"))
from random import Random
from ostinato.deploy.abtest import judge
from ostinato.deploy.terms import Trial
def verdict(latency):
    draw, drawn = Random(1), []
    for number in range(400):
        arm = ("champion", "challenger")[number % 2]
        gains = {"latency": draw.uniform(2.5, 3.5) * (latency if number % 2 else 1.0)}
        drawn.append(o.TrialSession(arm=arm, user=f"u{number % 100}", at=float(number),
                                    value=float(draw.random() < 0.5), tokens=9.0, gains=gains))
    trial = Trial(experiment="e", share=0.5, horizon=400, alpha=0.05, claim="faster", margin=0.3)
    return judge(5, trial, drawn)
assert "and faster: " in verdict(0.8).reason and verdict(0.8).decision == "promote_cheaper"
assert verdict(1.0).decision == "inconclusive"
""",
    "task_source": """
o.use(str(folder / "task_source.py"))
from ostinato.loop.config import SourceConfig, TasksConfig, sources
from ostinato.tasks.pebble.generate import generate
from ostinato.tasks.pebble.write import write
for number, name in enumerate(("PAY-1", "WEB-1")):
    write(generate("fix", "train", number), Path("tickets") / name)
options = {"folder": "tickets", "prefix": "PAY-"}
config = TasksConfig(sources={"payments": SourceConfig(use="tickets", options=options)})
found = [each.provide(Path("out")).directory.name for each in sources(config).problems("train", 1)]
assert found == ["PAY-1"], found
""",
    "profile": """
o.use(str(folder / "profile.py"))
reading = o.profile("house").reading("open_file", {"file": "calc.py"})
assert (reading.tool, reading.arguments) == ("read", {"path": "calc.py"})
""",
    "tool": """
o.use(str(folder / "tool.py"))
from ostinato.harness.execute import Executor
from ostinato.harness.users import SilentUser
async def work():
    backend = await o.choose_backend("process")
    Path("repo").mkdir()
    sandbox = await backend.create(o.Spec(repo=Path("repo")))
    tools = Executor(sandbox, SilentUser(), command_timeout_s=5, profile=o.profile("owned"))
    missing = await tools.run("owners", {"path": "src/a.py"})
    await sandbox.write("OWNERS", b"src ada\\nsrc/a.py ben\\n")
    found = await tools.run("owners", {"path": "src/a.py"})
    wrong = await tools.run("owners", {"file": "a"})
    await sandbox.destroy()
    await backend.aclose()
    assert missing.error is not None and found.text == "ben" and wrong.broken, (missing, found, wrong)
asyncio.run(work())
assert o.profile("owned").hash != o.profile("core").hash
""",
    "sandbox_backend": """
o.use(str(folder / "sandbox_backend.py"))
async def make():
    backend = await o.choose_backend("counted")
    assert backend.name == "counted" and backend.made == 1
    await backend.aclose()
asyncio.run(make())
""",
    "loss": """
o.use(str(folder / "loss.py"))
import torch
from ostinato.train.config import PolicyConfig
from ostinato.train.objective.loss import loss_of
logprobs = torch.tensor([-1.0, -1.0], requires_grad=True)
tokens = o.SampledTokens(logprobs_N=logprobs, sampler_N=torch.tensor([-1.0, -2.0]),
                         advantages_N=torch.tensor([1.0, 1.0]), rows_N=torch.zeros(2))
losses, cut = loss_of(PolicyConfig(loss="clipped"))(tokens)
losses.sum().backward()
assert cut.tolist() == [False, True] and logprobs.grad.tolist() == [-1.0, 0.0]
""",
    "baseline": """
o.use(str(folder / "baseline.py"))
from ostinato.train.config import PolicyConfig
from ostinato.train.objective.group import baseline_of
assert PolicyConfig(baseline="median").baseline == "median"
assert baseline_of("median")([0.0, 1.0, 10.0]) == [-1.0, 0.0, 9.0]
""",
    "trainer": """
o.use(str(folder / "trainer.py"))
from ostinato.train.config import PolicyConfig, plugins_of
(said,) = plugins_of(PolicyConfig(), o.TrainerConfig(kind="still_words"))
assert said.startswith("trainer still_words ")
""",
    "correction": """
o.use(str(folder / "correction.py"))
import torch
from ostinato.train.config import PolicyConfig
from ostinato.train.objective.corrections import correction_of
correct = correction_of(PolicyConfig(correction="one_sided"))
weights, cut = correct(torch.tensor([-1.0, 1.0]), torch.zeros(2))
assert weights.tolist() == [1.0, 0.0] and cut.tolist() == [False, True]
""",
    "outlet": """
o.use(str(folder / "outlet.py"))
from ostinato.train.figures.outlets import open_outlets
(outlet,) = open_outlets(("lines",), Path())
figures = o.StepFigures(version=3, loss=0.1, gradient=0.4, rows=8, tokens=9, sessions=8, staleness=1,
                        ratio=1.0, cut=0.0, reward=0.5, best=1.0, seconds=3.0, waited=1.0)
outlet.add(figures)
outlet.close()
assert json.loads(Path("figures.jsonl").read_text())["version"] == 3
""",
    "family": """
o.use(str(folder / "family.py"))
from ostinato.model.families import HermesRenderer, RenderError, load_renderer, skeletons
from ostinato.model.tokenizer import Tokenizer
core = o.profile("core")
Tokenizer.train(["def f(): pass"], 420, skeletons(core.system, core.tools)).save(Path("base"))
(Path("base") / "chat_template.jinja").unlink(missing_ok=True)
(Path("base") / "tokenizer_config.json").write_text("{}")
try:
    load_renderer(Path("base"))
    raise AssertionError("it has no template")
except RenderError:
    (Path("base") / "format").write_text("hermes")
assert isinstance(load_renderer(Path("base")), HermesRenderer)
""",
    "engine": """
o.use(str(folder / "engine.py"))
from ostinato.engine.server import _engine
from ostinato.model.config import ModelConfig
from ostinato.model.create import create
from ostinato.model.families import skeletons
core = o.profile("core")
tokenizer = o.Tokenizer.train(["def f(): pass"], 420, skeletons(core.system, core.tools))
tokenizer.save(Path("start"))
create(Path("start"), ModelConfig(vocab_size=tokenizer.vocab_size), seed=1)
async def serve():
    engine = await _engine(o.EngineServerConfig(checkpoint=Path("start"), backend="quiet"), Path())
    assert type(engine).__name__ == "EmbeddedEngine"
    await engine.aclose()
asyncio.run(serve())
""",
    "notebook": """
import runpy, time
from dataclasses import replace
from tests.store.builders import session as new
Path("runs/serve").mkdir(parents=True)
store = o.Store.open("runs/serve/store.db")
store.record([turn()], (), [new("s", arm="champion", started_at=time.time())])
store.add_rewards([o.Reward(session_id="s", definition="d", parts=(o.RewardPart(name="kept", value=0.5),))])
run = runpy.run_path(str(folder / "notebook.py"))
assert run["parts"] == {"kept": 0.5} and list(run["frame"]["total"]) == [0.5]
""",
    "exporter": """
o.use(str(folder / "exporter.py"))
from ostinato.harness.export import FORMATS
events = [o.LogEvent(at=0.0, kind=o.LogEventKind.USER, data={"text": "mend it"}),
          o.LogEvent(at=1.0, kind=o.LogEventKind.REPLY, data={"message": {"content": "Done."}})]
assert FORMATS["markdown"](events) == "## Asked\\n\\nmend it\\n\\n## Answered\\n\\nDone."
""",
}
"""What is done with each example, whose folder is `folder`."""
COMMON = """
import asyncio, json, sys
from dataclasses import replace
from pathlib import Path
folder = Path(sys.argv[1])
sys.path.insert(0, sys.argv[2])
import ostinato as o
from ostinato.types import SignalKind
from tests.rewards.builders import call, renderer, session, signal, turn
"""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_does_what_its_page_says_from_an_empty_folder(path: Path, tmp_path: Path) -> None:
    program = COMMON + USES[path.stem]
    command = [sys.executable, "-P", "-c", program, str(path.parent), str(ROOT)]
    own = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(path.read_text().splitlines()) <= 30


def test_every_door_has_a_page_and_an_example() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text()
    assert {path.stem for path in EXAMPLES} == set(USES)
    assert all(f"examples/{path.name}" in page for path in EXAMPLES)


def test_the_public_names_are_those_of_the_stub_and_of_the_page() -> None:
    stub = ast.parse(Path(ostinato.__file__).with_suffix(".pyi").read_text())
    typed = {
        (each.module, name.name)
        for each in stub.body
        if isinstance(each, ast.ImportFrom)
        for name in each.names
    }
    assert typed == {(f"ostinato.{room}", name) for room, names in ostinato.ROOMS.items() for name in names}
    page = (ROOT / "docs" / "plugins.md").read_text()
    for names in ostinato.ROOMS.values():
        for name in names:
            assert getattr(ostinato, name) is not None
            assert find_spec(f"ostinato.{name}") is None, f"a room hides {name} once it is imported"
            assert f"`{name}`" in page, f"docs/plugins.md does not list {name}"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ostinato.nothing
