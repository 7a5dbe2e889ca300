"""The learner with a real tiny model: its training, its waits, and the state after a kill.

Covers train/learner.py, train/trainer.py, train/opened.py, train/base.py, train/process.py and
train/config.py.
"""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ostinato.model.checkpoint import load, save
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Ledger, LedgerError, Objects, Store
from ostinato.store.ledger.slot_rows import SlotState, read
from ostinato.store.ledger.slots import Slots
from ostinato.store.purge import purge
from ostinato.store.steps import dropped_so_far, steps
from ostinato.sync import Fenced, Publisher, Subscriber
from ostinato.train.base import BEYOND_CONTEXT, NO_GRADIENT, StepError
from ostinato.train.config import LearnerConfig
from ostinato.train.journal import Journal
from ostinato.train.learner import BAD_BATCHES, Learner, main
from ostinato.train.local import DecoderModel
from ostinato.train.state import States
from ostinato.train.trainer import ChainTrainer
from ostinato.types import (
    Completion,
    FinishReason,
    Group,
    Sample,
    Session,
    Source,
    State,
    StepFigures,
    Turn,
    from_json,
)

MakeSample = Callable[..., Sample]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model of a few thousand parameters, vocabulary and all."""
    directory = tmp_path_factory.mktemp("checkpoint")
    tokenizer = Tokenizer.train(["def alpha(x): return x + 1"] * 3, 280, [])
    torch.manual_seed(0)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        layers=1,
        heads=2,
        kv_heads=2,
        head_dim=8,
        intermediate_size=32,
    )
    save(directory, Decoder(config), tokenizer, version=0)
    return directory


class Bench:
    """A store with groups to train on, and learners over it."""

    def __init__(self, directory: Path, checkpoint: Path, make_sample: MakeSample) -> None:
        self.directory = directory
        self.checkpoint = checkpoint
        self._make_sample = make_sample
        self.store = Store.open(directory / "store.db")
        self.ledger = Ledger(self.store)
        self.objects = Objects.open(directory / "objects")
        self._offered = 0

    def offer(self, *advantages: float, version: int = 0, kind: str = "fix", **about: float) -> str:
        """One group with a session of one turn for each advantage; gives its id."""
        self._offered += 1
        name = f"g{self._offered}"
        samples = []
        for i, advantage in enumerate(advantages):
            sample = self._make_sample(
                100 * self._offered + i,
                session=f"{name}s{i}",
                advantage=advantage,
                version=version,
                **about,
            )
            samples.append(sample)
            self.store.record([turn_of(sample)], (), [session_of(sample)])
        slots = Slots(self.store)
        done = slots.plan(name, [sample.session_id for sample in samples])
        for state in (SlotState.RUNNING, SlotState.FINISHED, SlotState.SCORED):
            done = slots.move(done, [replace(slot, state=state) for slot in done])
        self.ledger.offer(
            Group(id=name, prompt=name, samples=tuple(samples), rewards=(0.5,) * len(samples), kind=kind)
        )
        return name

    def learner(
        self,
        config: LearnerConfig | None = None,
        objects: Objects | None = None,
        folder: str = "run",
        before: Path | None = None,
    ) -> Learner:
        decoder, _, meta = load(self.checkpoint)
        run_dir, config = self.directory / folder, config or LearnerConfig(groups=2)
        model = DecoderModel(decoder, run_dir)
        trainer = ChainTrainer(model, objects or self.objects, config, before=before)
        learner = Learner(trainer, self.store, Journal(run_dir / "learner.jsonl"), config)
        learner.start(meta.version)
        self.trainer = trainer
        return learner

    def slots(self, prompt: str) -> list[tuple[str, str | None]]:
        """The state and the reason of each slot of a prompt."""
        with self.store.database.read() as connection:
            return [(slot.state.value, slot.reason) for slot in read(connection, [prompt])[prompt]]

    def weights(self, version: int) -> dict[str, Tensor]:
        return Subscriber(self.objects).fetch(version)

    def lines(self) -> list[dict[str, Any]]:
        return Journal(self.directory / "run" / "learner.jsonl").lines()


def turn_of(sample: Sample) -> Turn:
    completion = Completion(
        ids=sample.ids[2:],
        logprobs=sample.logprobs[2:],
        versions=sample.versions[2:],
        finish=FinishReason.STOP,
    )
    return Turn(
        session_id=sample.session_id,
        index=0,
        segment=0,
        arm="a",
        prompt_ids=sample.ids[:2],
        completion=completion,
        started_at=0.0,
        latency_s=0.1,
    )


def session_of(sample: Sample) -> Session:
    return Session(
        id=sample.session_id,
        source=Source.PRACTICE,
        user="u",
        arm="a",
        task_id=None,
        harness="h",
        started_at=0.0,
    )


@pytest.fixture
def bench(tmp_path: Path, checkpoint: Path, make_sample: MakeSample) -> Bench:
    return Bench(tmp_path, checkpoint, make_sample)


def never() -> bool:
    return False


def test_starts_from_the_checkpoint_and_publishes_it(bench: Bench) -> None:
    learner = bench.learner()
    assert learner.version == 0 and [row.version for row in bench.store.versions()] == [0]
    published = bench.weights(0)
    for name, tensor in load(bench.checkpoint)[0].state_dict().items():
        assert torch.equal(tensor, published[name])


def test_every_step_is_a_version_with_its_batch(bench: Bench) -> None:
    names = [bench.offer(0.5, -0.5) for _ in range(4)]
    bench.learner().run(2, never)
    rows = bench.store.versions()
    assert [(row.version, row.parent, row.batch) for row in rows] == [
        (0, None, ()),
        (1, 0, tuple(names[:2])),
        (2, 1, tuple(names[2:])),
    ]
    assert bench.ledger.states()[State.TRAINED] == 8 and bench.ledger.unaccounted() == 0
    assert [line["version"] for line in bench.lines()] == [0, 1, 2]
    assert not torch.equal(*(bench.weights(v)["model.embed_tokens.weight"] for v in (1, 2)))


def test_a_line_tells_how_the_step_went(bench: Bench) -> None:
    bench.offer(0.5, -0.5)
    bench.offer(0.0, 0.0)
    bench.learner().run(1, never)
    line = bench.lines()[-1]
    assert line["sessions"] == 4 and line["rows"] == 2 and line["reward"] == 0.5 and line["staleness"] == 0
    assert line["best"] == 0.5 and line["k1"] is None and line["lengths"]["most"] >= 2
    del line["weights"]
    assert steps(bench.store) == [from_json(StepFigures, line)]


def test_groups_that_are_too_old_are_dropped_and_accounted(bench: Bench) -> None:
    config = LearnerConfig(groups=1, staleness=1)
    learner = bench.learner(config)
    for version in range(3):
        bench.offer(0.5, -0.5, version=version)
        learner.advance(1)
    bench.offer(0.5, -0.5, version=0)
    bench.offer(0.5, -0.5, version=2)
    learner.advance(1)
    assert bench.ledger.states()[State.STALE] == 2
    assert max(line.get("staleness", 0) for line in bench.lines()) <= 1


def test_a_group_without_advantage_is_used_up_and_said_to_be_so(bench: Bench) -> None:
    bench.offer(0.0, 0.0)
    bench.offer(0.5, -0.5)
    bench.learner().run(1, never)
    states = bench.ledger.states()
    assert (states[State.NO_ADVANTAGE], states[State.TRAINED]) == (2, 2)
    assert bench.ledger.ready(0) == 0 and bench.ledger.unaccounted() == 0


def test_stops_while_it_waits(bench: Bench) -> None:
    asked = iter([False, False, True])
    learner = bench.learner()
    learner.run(1, lambda: next(asked))
    assert learner.version == 0


def test_groups_that_grew_old_are_not_left_waiting(bench: Bench) -> None:
    """The sampler waits until the waiting groups are used; an old one in between would stop both for ever."""
    learner = bench.learner(LearnerConfig(groups=2, staleness=0))
    bench.offer(0.5, -0.5)
    bench.offer(0.5, -0.5)
    learner.advance(2)
    bench.offer(0.5, -0.5, version=0)
    asked = iter([False, True])
    learner.run(2, lambda: next(asked))
    assert bench.ledger.ready(0) == 0 and bench.ledger.states()[State.STALE] == 2


def test_a_step_waits_for_the_group_in_flight_that_would_come_too_late_after_it(bench: Bench) -> None:
    """With a staleness of 1, version 2 is the last that may have a group of version 0."""
    learner = bench.learner(LearnerConfig(groups=1, staleness=1))
    slots = Slots(bench.store)
    (hard,) = slots.plan("hard", ["hard"])
    (hard,) = slots.move([hard], [replace(hard, state=SlotState.RUNNING)])
    bench.offer(0.5, -0.5)
    learner.run(1, never)
    bench.offer(0.5, -0.5, version=1)
    asked = iter([False, False, True])
    learner.run(2, lambda: next(asked))
    assert learner.version == 1 and bench.ledger.ready(1) == 1
    slots.move([hard], [replace(hard, state=SlotState.DROPPED, reason="void")])
    learner.run(2, never)
    assert learner.version == 2 and bench.ledger.states()[State.STALE] == 0


def test_a_second_learner_is_fenced_off(bench: Bench) -> None:
    for _ in range(4):
        bench.offer(0.5, -0.5)
    first, second = bench.learner(), bench.learner()
    with pytest.raises(Fenced):
        first.advance(1)
    assert second.advance(1) == 1


def test_goes_on_from_weights_that_another_run_published(bench: Bench) -> None:
    """A live learner starts from the newest version, with an empty run folder of its own."""
    decoder, _, _ = load(bench.checkpoint)
    publisher = Publisher(bench.objects)
    publisher.anchor(6, decoder.state_dict())
    with torch.no_grad():
        decoder.embedding.add_(0.1)
    publisher.delta(7, decoder.state_dict())
    bench.offer(0.5, -0.5, version=7)
    learner = bench.learner(LearnerConfig(groups=1, learning_rate=1e-12))
    learner.run(8, never)
    torch.testing.assert_close(bench.weights(8), bench.weights(7))


def test_a_run_begins_with_the_second_moments_of_the_one_before(bench: Bench) -> None:
    """First moments begin at zero and no rise follows: short steps at first, scaled as they were."""
    for _ in range(4):
        bench.offer(0.5, -0.5)
    first = bench.learner(LearnerConfig(groups=1))
    first.run(3, never)
    before = bench.directory / "run"
    one = bench.trainer
    learner = bench.learner(LearnerConfig(groups=1), folder="live", before=before)
    other = bench.trainer
    ours, theirs = other.model.optimizer.state, one.model.optimizer.state
    for mine, its in zip(other.model.decoder.parameters(), one.model.decoder.parameters(), strict=True):
        assert torch.equal(mine, its)
        assert torch.equal(ours[mine]["exp_avg_sq"], theirs[its]["exp_avg_sq"])
        assert not ours[mine]["exp_avg"].any() and ours[mine]["step"] == 3
    assert learner.advance(1) == 4


@pytest.mark.parametrize("argument", [("--groups", "0"), ("--staleness", "-1"), ("--ratio-cap", "0")])
def test_settings_that_make_no_sense_are_refused_at_the_start(
    argument: tuple[str, str], bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command(bench, 1)[3:], *argument])
    assert "must be above 0" in (said := capsys.readouterr().err) or "at least" in said


def test_what_came_too_late_is_counted_by_kind_and_length(bench: Bench) -> None:
    learner = bench.learner(LearnerConfig(groups=1, staleness=0))
    bench.offer(0.5, -0.5, kind="fix")
    learner.advance(1)
    for kind in ("spread", "spread", "fix"):
        bench.offer(0.5, -0.5, kind=kind, version=0)
    bench.offer(0.5, -0.5, kind="question", version=1)
    learner.advance(1)
    line = bench.lines()[-1]
    assert [(kind, each["groups"], each["length"]) for kind, each in line["kinds"].items()] == [
        ("question", 1, 12.0)
    ]
    stale = {kind: (each["groups"], each["length"]) for kind, each in line["stale_so_far"].items()}
    assert stale == {"fix": (1, 12.0), "spread": (2, 12.0)} and line["dropped_so_far"] == {"stale": 3}
    assert all(each["turns"] >= 1.0 for each in line["stale_so_far"].values())


@pytest.mark.parametrize(
    ("groups", "versions", "batches"), [(8, 5, [2, 2, 2, 1, 1]), (2, 4, [1, 1]), (0, 3, [])]
)
def test_what_was_collected_is_spread_and_nothing_unchanged_is_published(
    bench: Bench, groups: int, versions: int, batches: list[int]
) -> None:
    for _ in range(groups):
        bench.offer(0.5, -0.5)
    bench.learner(LearnerConfig(spread=True)).run(versions, never)
    assert [len(row.batch) for row in bench.store.versions()[1:]] == batches
    assert published(bench) == len(batches) and bench.ledger.unended() == 0


def test_live_sessions_that_all_agree_make_no_version(bench: Bench) -> None:
    for _ in range(4):
        bench.offer(0.0)
    learner = bench.learner(LearnerConfig(spread=True))
    learner.run(3, never)
    assert learner.version == 0 and bench.ledger.unended() == 0
    assert bench.ledger.states()[State.NO_ADVANTAGE] > 0 and bench.ledger.states()[State.TRAINED] == 0
    bench.offer(0.5, -0.5)
    learner.run(3, never)
    assert learner.version == 1


def test_a_purge_while_a_share_is_counted_is_not_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.offer(0.5, -0.5), bench.offer(0.5, -0.5)
    learner = bench.learner(LearnerConfig(spread=True))
    share = learner._share

    def purged(until: int) -> int:
        count = share(until)
        purge(bench.store, by="admin", session="g1s0")
        return count

    monkeypatch.setattr(learner, "_share", purged)
    learner.run(1, never)
    assert learner.version == 1 and bench.ledger.unended() == 0


def test_an_older_version_that_was_put_back_trains_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner dies within step 1, an operator publishes version 0 again as 1, the learner comes back."""
    name = bench.offer(0.5, -0.5)
    plug = Plug(Publisher, "delta", call=1, before=True)
    with monkeypatch.context() as patch:
        plug.install(patch)
        with pytest.raises(PulledPlugError):
            bench.learner(LearnerConfig(groups=1)).run(1, never)
    operator = Publisher(bench.objects)
    operator.resume()
    operator.delta(1, bench.weights(0))
    learner = bench.learner(LearnerConfig(groups=1))
    assert bench.ledger.states()[State.TRAINED] == 0 and bench.ledger.ready(0) == 1
    learner.run(2, never)
    assert [row.batch for row in bench.store.versions()] == [(), (), (name,)]
    assert bench.ledger.trained_twice() == 0 and bench.ledger.unended() == 0


def test_a_version_that_died_before_its_commit_is_known_though_another_followed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = bench.offer(0.5, -0.5)
    plug = Plug(Ledger, "commit", call=2, before=True)
    with monkeypatch.context() as patch:
        plug.install(patch)
        with pytest.raises(PulledPlugError):
            bench.learner(LearnerConfig(groups=1)).run(1, never)
    operator = Publisher(bench.objects)
    operator.resume()
    operator.delta(2, bench.weights(0))
    bench.learner(LearnerConfig(groups=1))
    assert [row.batch for row in bench.store.versions()] == [(), (name,), ()]
    assert bench.ledger.ready(0) == 0 and bench.ledger.states()[State.TRAINED] == 2


def test_a_second_chain_of_weights_is_refused_before_it_claims(bench: Bench) -> None:
    bench.learner()
    bench.offer(0.5, -0.5)
    with pytest.raises(LedgerError, match="is the record of the chain of weights"):
        bench.learner(objects=Objects.open(bench.directory / "other"))
    assert bench.ledger.ready(0) == 1


def test_a_group_that_cannot_be_trained_on_is_dropped_with_its_reason_and_the_rest_is_trained(
    bench: Bench,
) -> None:
    good, steep = bench.offer(0.5, -0.5), bench.offer(1e38, -0.5, logprob=-20.0)
    other, long = bench.offer(0.5, -0.5), bench.offer(0.5, -0.5, length=5000)
    learner = bench.learner(LearnerConfig(groups=4))
    learner.run(1, never)
    assert [row.batch for row in bench.store.versions()] == [(), (good, other)]
    line = steps(bench.store)[-1]
    assert line.dropped == {NO_GRADIENT: 1, BEYOND_CONTEXT: 1} and line.sessions == 4
    assert dropped_so_far(bench.store) == {
        f"dropped: {NO_GRADIENT}": 1,
        f"dropped: {BEYOND_CONTEXT}": 1,
        f"turns: {NO_GRADIENT}": 2,
        f"turns: {BEYOND_CONTEXT}": 2,
    }
    slots = {name: bench.slots(name) for name in (good, steep, other, long)}
    assert slots[good] == slots[other] == [("trained", None)] * 2
    assert slots[steep] == [("dropped", NO_GRADIENT)] * 2
    assert slots[long] == [("dropped", BEYOND_CONTEXT)] * 2
    assert bench.ledger.unended() == bench.ledger.unaccounted() == 0


def test_batches_of_such_groups_alone_are_dropped_and_the_third_in_a_row_ends_the_learner(
    bench: Bench,
) -> None:
    learner = bench.learner(LearnerConfig(groups=1))
    for _ in range(BAD_BATCHES - 1):
        for _ in range(2):
            bench.offer(1e38, -0.5, logprob=-20.0)
        assert learner.advance(2) == 0
    bench.offer(0.5, -0.5)
    assert learner.advance(1) == 1 and bench.ledger.states()[State.UNTRAINABLE] == 8
    bad = [bench.offer(1e38, -0.5, logprob=-20.0) for _ in range(BAD_BATCHES)]
    with pytest.raises(StepError, match=f"version 2 cannot be made: 3 batches .* the last of {bad[-1]} "):
        learner.run(2, never)
    again = bench.learner(LearnerConfig(groups=1))
    assert bench.ledger.ready(0) == 1 and again.version == 1
    bench.offer(0.5, -0.5)
    again.run(2, never)
    assert bench.ledger.unended() == 0 and len(bench.store.versions()) == 3


class PulledPlugError(BaseException):
    """Stands for the end of the process: nothing in the learner may catch it."""


class Plug:
    """Ends the process before or after the n-th call of one method, once."""

    def __init__(self, owner: type, method: str, *, call: int, before: bool) -> None:
        self.owner, self.method, self.left, self.before = owner, method, call, before
        self.pulled = False

    def install(self, patch: pytest.MonkeyPatch) -> None:
        whole = getattr(self.owner, self.method)

        def half(*arguments: object, **named: object) -> object:
            self.left -= 1
            due = self.left == 0
            if due and self.before:
                self._pull()
            result = whole(*arguments, **named)
            if due:
                self._pull()
            return result

        patch.setattr(self.owner, self.method, half)

    def _pull(self) -> None:
        self.pulled = True
        raise PulledPlugError


POINTS = [
    (Ledger, "claim"),
    (States, "save"),
    (Objects, "create"),
    (Publisher, "delta"),
    (Ledger, "commit"),
    (Journal, "add"),
]


@pytest.fixture
def whole(tmp_path: Path, checkpoint: Path, make_sample: MakeSample) -> Bench:
    """A second bench with the same groups, for the run that is never interrupted."""
    (tmp_path / "whole").mkdir()
    return Bench(tmp_path / "whole", checkpoint, make_sample)


@pytest.fixture(params=[True, False], ids=["before", "after"])
def before(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=POINTS, ids=[f"{owner.__name__}.{method}" for owner, method in POINTS])
def point(request: pytest.FixtureRequest) -> tuple[type, str]:
    found: tuple[type, str] = request.param
    return found


@pytest.fixture(params=[1, 3])
def plug(request: pytest.FixtureRequest, point: tuple[type, str], before: bool) -> Plug:
    return Plug(*point, call=request.param, before=before)


def test_dying_at_any_point_changes_nothing(
    bench: Bench, whole: Bench, monkeypatch: pytest.MonkeyPatch, plug: Plug
) -> None:
    for each in (bench, whole):
        for _ in range(6):
            each.offer(0.5, -0.5)
    die_once(bench, whole, plug, monkeypatch, until=3)


def test_dying_around_groups_that_cannot_be_trained_on_changes_nothing(
    bench: Bench, whole: Bench, monkeypatch: pytest.MonkeyPatch, plug: Plug
) -> None:
    """They are dropped in the transaction that follows the publication, so no kill falls between."""
    for each in (bench, whole):
        for i in range(6):
            each.offer(*((1e38, -0.5) if i in {1, 2, 4} else (0.5, -0.5)), logprob=-20.0)
    die_once(bench, whole, plug, monkeypatch, until=3)
    assert bench.ledger.states()[State.UNTRAINABLE] == 6 and bench.ledger.unended() == 0
    assert [bench.slots(f"g{i}") for i in range(1, 7)] == [whole.slots(f"g{i}") for i in range(1, 7)]


@pytest.mark.parametrize("plug", [1, 2], indirect=True)
@pytest.mark.parametrize("point", [(Ledger, "drop_claimed")], indirect=True, ids=["drop_claimed"])
def test_dying_around_the_drop_of_a_whole_batch_changes_nothing(
    bench: Bench, whole: Bench, monkeypatch: pytest.MonkeyPatch, plug: Plug
) -> None:
    for each in (bench, whole):
        for i in range(4):
            each.offer(*((1e38, -0.5) if i < 2 else (0.5, -0.5)), logprob=-20.0)
    die_once(bench, whole, plug, monkeypatch, LearnerConfig(groups=1), until=2)
    assert bench.ledger.states()[State.UNTRAINABLE] == 4 and bench.ledger.unended() == 0


def die_once(
    bench: Bench,
    whole: Bench,
    plug: Plug,
    monkeypatch: pytest.MonkeyPatch,
    *config: LearnerConfig,
    until: int,
) -> None:
    """Pull the plug from one run, let it go on, and compare it with the whole one."""
    whole.learner(*config).run(until, never)
    with monkeypatch.context() as patch:
        plug.install(patch)
        with pytest.raises(PulledPlugError):
            bench.learner(*config).run(until, never)
    assert plug.pulled
    bench.learner(*config).run(until, never)
    same_outcome(bench, whole, until)


def same_outcome(bench: Bench, whole: Bench, until: int) -> None:
    """The ledger, the lineage, the progress and every bit of the weights are as if nothing had happened."""
    assert bench.ledger.trained_twice() == 0 and bench.ledger.unaccounted() == 0
    assert bench.ledger.states() == whole.ledger.states()
    assert [row.batch for row in bench.store.versions()] == [row.batch for row in whole.store.versions()]
    assert [line["version"] for line in bench.lines()] == list(range(until + 1))
    ours, theirs = bench.weights(until), whole.weights(until)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def command(bench: Bench, until: int) -> list[str]:
    return [
        *(sys.executable, "-m", "ostinato.train.learner", "--store", str(bench.directory / "store.db")),
        *("--objects", str(bench.directory / "objects"), "--checkpoint", str(bench.checkpoint)),
        *("--run-dir", str(bench.directory / "run"), "--until", str(until), "--groups", "1"),
        *("--staleness", "1000"),
    ]


def published(bench: Bench) -> int:
    return Subscriber(bench.objects).head() or 0


@pytest.mark.slow
def test_kill_9_at_random_points_loses_nothing_and_trains_nothing_twice(bench: Bench, whole: Bench) -> None:
    until, rng = 80, random.Random(3)
    for each in (bench, whole):
        for _ in range(until):
            each.offer(0.5, -0.5)
    whole.learner(LearnerConfig(groups=1, staleness=1000)).run(until, never)
    for kill in range(4):
        goal = published(bench) + rng.randint(1, 12)
        process = subprocess.Popen(command(bench, until))
        while published(bench) < goal:
            assert process.poll() is None, "the learner ended by itself"
            time.sleep(0.01)
        time.sleep(rng.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, f"kill {kill} came too late"
    assert subprocess.run(command(bench, until), check=False).returncode == 0
    same_outcome(bench, whole, until)


@pytest.mark.slow
def test_sigterm_ends_cleanly_and_leaves_a_checkpoint(bench: Bench) -> None:
    bench.offer(0.5, -0.5)
    process = subprocess.Popen(command(bench, until=9))
    while published(bench) < 1:
        assert process.poll() is None
        time.sleep(0.01)
    process.terminate()
    assert process.wait() == 0
    meta = json.loads((bench.directory / "run" / "checkpoint" / "ostinato.json").read_text())
    assert (meta["version"], meta["parent"]) == (1, 0)


def test_a_missing_checkpoint_is_said_plainly(bench: Bench) -> None:
    arguments = [
        str(bench.directory / "nowhere") if a == str(bench.checkpoint) else a for a in command(bench, 1)
    ]
    done = subprocess.run(arguments, check=False, capture_output=True, text=True)
    assert done.returncode == 1 and "nowhere: config.json is missing" in done.stderr
