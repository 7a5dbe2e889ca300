"""The choice of demonstrations: what may not be learnt from is counted with its reason."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ostinato.bench.fence import task_text
from ostinato.harness.profiles.profile import PROFILES, Profile
from ostinato.loop.sft.choose import Chooser, ChosenSessions, FencedTasks, SftError, able, showable
from ostinato.loop.sft.config import DemonstrationsConfig
from ostinato.model.families import Renderer, load_renderer
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.tasks.pebble import generate, provide
from ostinato.tasks.source import FolderSource
from ostinato.types import (
    Completion,
    Distribution,
    Ending,
    FinishReason,
    Reward,
    RewardPart,
    Session,
    Signal,
    SignalKind,
    Source,
    Turn,
    TurnKind,
)

TOKENIZER = Tokenizer.train(["def alpha(a, b): return a - b"], 300)
READ_CALL = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
CONTEXT = 400


@pytest.fixture
def renderer(tmp_path: Path) -> Renderer:
    TOKENIZER.save(tmp_path / "model")
    return load_renderer(tmp_path / "model")


class Recorded:
    """A record, and sessions that are put into it."""

    def __init__(self, folder: Path, renderer: Renderer) -> None:
        self.store, self.folder, self._renderer = Store.open(folder / "store.db"), folder, renderer

    def add(
        self,
        id: str,
        source: Source,
        text: str = "done",
        *,
        call: str = "read",
        asked: str = "fix it",
        reward: float | None = None,
        solved: float | None = None,
        user: str = "ada",
        consent: bool = True,
        task: str | None = None,
    ) -> None:
        """Record a session that reads a file, says `text` and has a call beside its work."""
        ending = Ending.ABANDONED if text == "…" else Ending.FINISHED
        session = Session(
            id=id, source=source, user=user, arm="main", task_id=task, harness="elsewhere", started_at=0.0,
            ending=ending, consent=consent,
        )  # fmt: skip
        function = READ_CALL["function"] | {"name": call}  # type: ignore[operator]
        calls = {"role": "assistant", "content": None, "tool_calls": [READ_CALL | {"function": function}]}
        ids = list(self._renderer.render([{"role": "user", "content": asked}]))
        turns = list[Turn]()
        for message, after in ((calls, {"role": "tool", "tool_call_id": "c", "content": "a"}), (text, None)):
            said = message if isinstance(message, dict) else {"role": "assistant", "content": message}
            out = tuple(self._renderer.say(said))
            turns.append(turn(id, len(turns), tuple(ids), out))
            ids += [*out, *(self._renderer.extend([after]) if after else [])]
        beside = replace(turn(id, 2, (1, 2), (3,)), kind=TurnKind.SIDE, segment=1)
        facts = [(SignalKind.HIDDEN_TESTS, solved)] if solved is not None else []
        signals = [Signal(session_id=id, kind=kind, value=value, observed_at=0.0) for kind, value in facts]
        self.store.record([*turns, beside], signals, [session])
        if reward is not None:
            part = RewardPart(name="kept", value=reward)
            self.store.add_rewards([Reward(session_id=id, definition="d", parts=(part,))])


def turn(id: str, index: int, prompt: tuple[int, ...], out: tuple[int, ...]) -> Turn:
    completion = Completion(
        ids=out, logprobs=(0.0,) * len(out), versions=(0,) * len(out), finish=FinishReason.STOP,
        distribution=Distribution.UNKNOWN,
    )  # fmt: skip
    return Turn(
        session_id=id, index=index, segment=0, arm="main", prompt_ids=prompt, completion=completion,
        started_at=0.0, latency_s=0.0,
    )  # fmt: skip


def chosen(
    recorded: Recorded,
    renderer: Renderer,
    *,
    profiles: Sequence[str] = ("core",),
    held_out: float = 0.0,
    context: int = CONTEXT,
) -> ChosenSessions:
    fence = FencedTasks.around([recorded.folder / "fence"])
    chooser = Chooser(renderer, context, profiles, fence, held_out=held_out, seed=1)
    place = str(recorded.folder / "store.db")
    return chooser.of_record("x", DemonstrationsConfig(record=place, checkpoint=recorded.folder / "model"))


@pytest.fixture
def recorded(tmp_path: Path, renderer: Renderer) -> Recorded:
    provide(generate("fix", "seeds", 1), tmp_path / "fence" / "task")
    found = Recorded(tmp_path, renderer)
    found.store.accounts.set_consent(user="ada", granted=True, by="ada")
    return found


def test_solved_rewarded_and_imported_sessions_are_learnt_from_and_others_counted(
    recorded: Recorded, renderer: Renderer
) -> None:
    add = recorded.add
    add("solved", Source.PRACTICE, solved=1.0)
    add("kept", Source.LIVE, reward=0.8)
    add("imported", Source.IMPORTED)
    add("bench", Source.BENCH, solved=1.0)
    add("failed", Source.PRACTICE, solved=0.0)
    add("unseen", Source.TEACHER)
    add("disliked", Source.LIVE, reward=0.2)
    add("young", Source.LIVE)
    add("no", Source.LIVE, reward=1.0, consent=False)
    add("withdrawn", Source.IMPORTED, user="bob")
    add("left", Source.IMPORTED, "…")
    add("foreign", Source.IMPORTED, call="Read")
    add("broken", Source.IMPORTED, "<tool_call>\nread\n</tool_call>")
    add("long", Source.IMPORTED, "x" * 2 * CONTEXT)
    found = chosen(recorded, renderer)
    assert set(found.train) == {"solved", "kept", "imported"} and found.held_out == ()
    assert found.left_out == {
        "sessions that did not solve their task": 1, "sessions without a verdict": 1,
        "sessions with a reward below 0.5": 1, "sessions without a reward yet": 1,
        "sessions without consent": 2, "sessions that did not finish": 1,
        "sessions that call Read, which no profile here has": 1,
        "sessions with a call that cannot be read": 1,
        f"sessions longer than the {CONTEXT} positions of the start": 1,
    }  # fmt: skip
    assert "foreign" in chosen(recorded, renderer, profiles=("core", "claude")).train
    add("same", Source.PRACTICE, solved=1.0, task=generate("fix", "seeds", 1).id)
    add("leak", Source.IMPORTED, asked=task_text(FolderSource(recorded.folder / "fence").tasks[0]))
    found = chosen(recorded, renderer, context=50_000)
    assert found.left_out["sessions that show a task of the fence"] == 2 and "long" in found.train


def test_a_task_is_learnt_from_or_held_out_as_a_whole(recorded: Recorded, renderer: Renderer) -> None:
    for number in range(12):
        recorded.add(f"s{number}", Source.PRACTICE, solved=1.0, task=f"t{number // 3}")
    found = chosen(recorded, renderer, held_out=0.3)
    assert len(found.held_out) == 3 and len(found.train) == 9
    assert len({int(id[1:]) // 3 for id in found.held_out}) == 1
    assert found == chosen(recorded, renderer, held_out=0.3)
    assert len(chosen(recorded, renderer, held_out=0.01).held_out) == 3, "of two or more at least one"
    fence, place = FencedTasks.around([]), str(recorded.folder / "store.db")
    chooser = Chooser(renderer, CONTEXT, ("core",), fence, held_out=0.3, seed=1)
    source = DemonstrationsConfig(record=place, checkpoint=recorded.folder / "model")
    assert chooser.of_record("x", source) == chooser.of_record("y", source), "in every source"


def test_a_record_of_another_tokenizer_or_none_is_refused(recorded: Recorded, renderer: Renderer) -> None:
    Tokenizer.train(["quite another text " * 9], 310).save(recorded.folder / "model")
    with pytest.raises(SftError, match="the start has another"):
        chosen(recorded, renderer)
    (recorded.folder / "model" / "tokenizer.json").unlink()
    with pytest.raises(SftError, match="name by `checkpoint`"):
        chosen(recorded, renderer)
    (recorded.folder / "store.db").unlink()
    with pytest.raises(SftError, match="holds no record"):
        chosen(recorded, renderer)


def test_only_tasks_for_learning_outside_of_the_fence_are_shown(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    for number in range(3):
        provide(generate("fix", "train", number), tasks / str(number))
    provide(generate("fix", "seeds", 1), tasks / "held")
    (tasks / "2" / "solution").rename(tmp_path / "gone")
    left_out, source = Counter[str](), DemonstrationsConfig(tasks=tasks)
    found = showable("x", source, FencedTasks.around([tasks / "1"]), left_out)
    assert left_out["tasks of the fence"] >= 1
    assert left_out["tasks of the split seeds, which are not for learning"] == 1
    assert len(found) + sum(left_out.values()) == 4
    (tasks / "suite.json").write_text("{}")
    with pytest.raises(SftError, match="is a sealed suite"):
        showable("x", source, FencedTasks.around([]), left_out)


def test_a_profile_that_lacks_a_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Profile(name="reads", offers=tuple(o for o in PROFILES["core"].offers if o.tool == "read"))
    monkeypatch.setitem(PROFILES._things, "reads", reads)
    left_out = Counter[str]()
    assert able(("core", "reads"), left_out, 4) == ["core"]
    assert left_out == {"the profile reads has no call to edit, bash": 4}
