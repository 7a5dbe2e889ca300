"""The teacher speaks the words of any profile that can edit, and reads them back as its own.

Covers loop/stages/dialect.py.
"""

import json
from pathlib import Path

import pytest
from tests.resources import fake_resources

from ostinato.config import ConfigError, read
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.harness.profiles import forms
from ostinato.harness.profiles.forms import Form
from ostinato.harness.profiles.profile import PROFILES, profile
from ostinato.loop.config import RunConfig, check
from ostinato.loop.run import START
from ostinato.loop.stages.dialect import Wording, literals
from ostinato.loop.stages.prepare import load_wire
from ostinato.loop.stages.teacher import Lessons, TeacherPolicy
from ostinato.model.families import assistant_message, parse_text
from ostinato.store import Ledger
from ostinato.tasks.pebble import generate, problem
from ostinato.tasks.teaching.habits import broken_call, call
from ostinato.types import TEACHER_VERSION, Arm, Ending, Source

TAUGHT = sorted(set(PROFILES) - {"mini"})
EDIT = {"path": "calc.py", "old_string": "    return a - b", "new_string": "    return a + b"}
CALLS = [
    ("read", {"path": "calc.py"}),
    ("edit", EDIT),
    ("bash", {"command": "pytest"}),
    ("ask_user", {"question": "which one?"}),
]


@pytest.mark.parametrize("name", TAUGHT)
@pytest.mark.parametrize(("tool", "arguments"), CALLS, ids=[tool for tool, _ in CALLS])
def test_every_profile_reads_what_is_written_and_the_teacher_reads_its_own_words(
    name, tool, arguments
) -> None:
    dialect, text = Wording(profile(name)), call(tool, **arguments)
    message = dialect.worded(text)
    if not message.get("tool_calls"):
        assert tool == "ask_user" and message["content"] == "which one?"
        assert not any(offer.tool == "ask_user" for offer in profile(name).offers)
        return
    (wire,) = message["tool_calls"]
    reading = profile(name).reading(wire["function"]["name"], json.loads(wire["function"]["arguments"]))
    assert reading.error is None
    (back,) = dialect.meant([message])
    assert back == assistant_message(parse_text(text))


@pytest.mark.parametrize("name", ["core", "compact", "full", "short"])
def test_the_canonical_words_stay_as_they_are_to_the_byte(name: str) -> None:
    for tool, arguments in CALLS:
        text = f"alpha(a)\n{call(tool, **arguments)}"
        assert Wording(profile(name)).worded(text) == assistant_message(parse_text(text))
    assert Wording(profile(name)).worded("done")["content"] == "done"
    assert Wording(profile(name)).worded(broken_call("calc.py"))["content"] == broken_call("calc.py")


def test_a_broken_call_is_broken_in_the_words_of_the_profile() -> None:
    text = Wording(PROFILES["codex"]).worded(broken_call("calc.py"))["content"]
    assert parse_text(text).broken is not None
    mended = parse_text(text.replace("]}\n", "]}}\n"))
    assert [(each.name, each.arguments) for each in mended.tool_calls] == [
        ("shell", {"command": ["cat", "calc.py"]})
    ]


@pytest.mark.parametrize(
    ("form", "value"),
    [(Form.ARGV, "pytest -q"), (Form.ARGV, "pytest | tail -1"), (Form.MILLISECONDS, 3), (Form.PLAIN, "x")],
)
def test_a_form_reads_what_it_writes(form: Form, value: object) -> None:
    assert forms.read(form, "key", forms.write(form, value)) == {"key": value}


def test_a_form_that_no_script_writes_is_named() -> None:
    with pytest.raises(ValueError, match="written as a plan"):
        forms.write(Form.PLAN, [])


def test_the_text_of_patches_has_tokens_only_where_patches_are_taught() -> None:
    patch = "*** Begin Patch\\n*** Update File: "
    assert patch in literals(PROFILES["codex"]) and patch not in literals(PROFILES["short"])


async def test_lessons_are_given_under_each_profile_in_turn_and_solved(tmp_path: Path) -> None:
    names = ("core", "codex")
    async with fake_resources(tmp_path, lambda session_id, turn: "done", [], names) as resources:
        _, renderer = load_wire(resources.run.checkpoint(START))
        policy, client = TeacherPolicy(renderer), resources.client("teacher", "teacher")
        site = await serve_scripted(ScriptedEngine(policy))
        resources.put_arm(Arm(name="teacher", version=TEACHER_VERSION, share=0.0, engines=(site.url,)))
        runners = {name: resources.runner(client, name) for name in names}
        lessons = Lessons(runners, policy, Ledger(resources.store), tmp_path / "tasks", 2)
        drawn = iter([problem(generate("rename", "train", seed)) for seed in range(20)])
        await lessons.give(lambda: next(drawn), 6, 4, 3)
        await site.close()
        sessions = resources.store.sessions(source=Source.TEACHER)
        hashes = [profile(name).hash for name in names]
        assert sorted(session.harness for session in sessions) == sorted(12 * hashes)
        assert {session.ending for session in sessions} == {Ending.FINISHED}
        texts = {
            name: "".join(
                renderer.tokenizer.decode(turn.completion.ids)
                for session in sessions
                if session.harness == profile(name).hash
                for turn in resources.store.turns(session.id)
            )
            for name in names
        }
        assert '"name": "edit"' in texts["core"] and "Begin Patch" not in texts["core"]
        assert '"name": "apply_patch"' in texts["codex"] and '"name": "edit"' not in texts["codex"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"teach": {"profiles": ["core", "emacs"]}},
            "teach.profiles is .*: name each profile once, of core,",
        ),
        ({"teach": {"profiles": ["core", "core"]}}, "name each profile once"),
        ({"teach": {"profiles": ["codex"]}}, "teach the profile that the run goes on with, too"),
        ({"teach": {"profiles": ["core", "mini"]}}, "cannot edit under the profile 'mini'"),
        ({"bench": {"profiles": ["core"]}}, "bench.profiles repeats harness.profile, 'core'"),
    ],
)
def test_profiles_that_cannot_be_taught_or_measured_are_refused(settings, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check(read(RunConfig, settings, "run.toml"))


def test_a_run_may_teach_and_measure_two() -> None:
    settings = {"teach": {"profiles": ["core", "codex"]}, "bench": {"profiles": ["codex"]}}
    check(read(RunConfig, settings, "run.toml"))
