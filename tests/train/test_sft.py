import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from ostinato.model.checkpoint import load, load_meta, save
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Ledger, Objects, Store
from ostinato.sync import Subscriber
from ostinato.train.base import StateError
from ostinato.train.batch import Row
from ostinato.train.config import Budget, LearnerConfig, SftConfig
from ostinato.train.journal import Journal
from ostinato.train.local import DecoderModel
from ostinato.train.sft import Sft, learning_rate
from ostinato.train.trainer import ChainTrainer
from ostinato.types import Completion, Ending, FinishReason, Session, Source, State, Turn

ROWS = [
    Row(ids=tuple((3 * i + j) % 40 for j in range(8)), weights=(1.0,) * 8, session_id=f"s{i}")
    for i in range(30)
]


CONFIG = SftConfig()


def trainer_of(decoder: Decoder, run_dir: Path) -> ChainTrainer:
    model = DecoderModel(decoder, run_dir, weight_decay=CONFIG.weight_decay)
    return ChainTrainer(model, Objects.open(run_dir / "objects"), LearnerConfig())


def trainer(decoder: Decoder, run_dir: Path, steps: int) -> Sft:
    return Sft(trainer_of(decoder, run_dir), ROWS, run_dir, Budget(steps=steps), CONFIG, vocab_size=40)


def never() -> bool:
    return False


def test_the_rate_rises_stays_and_falls() -> None:
    rates = [learning_rate(CONFIG, step, step / 1000) for step in range(1000)]
    rise, rate = CONFIG.rise_steps, CONFIG.learning_rate
    assert rates[:rise] == sorted(rates[:rise]) and rates[0] == pytest.approx(rate / 30)
    assert set(rates[rise:600]) == {rate}
    assert rates[600:] == sorted(rates[600:], reverse=True)
    assert rates[-1] == pytest.approx(0.05 * rate) and rates[800] == pytest.approx(rate / 2)


@pytest.mark.parametrize(
    "wrong", [{"batch": 0}, {"learning_rate": 0.0}, {"induction": 1.0}, {"observed": 1.5}]
)
def test_settings_of_fine_tuning_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="sft: "):
        SftConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("both", [{}, {"steps": 1, "cpu_seconds": 1.0}])
def test_a_budget_is_one_of_both(both: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="either"):
        Budget(**both)  # type: ignore[arg-type]


def test_cpu_seconds_are_a_budget() -> None:
    assert Budget(cpu_seconds=10.0).used(step=999, cpu_s=2.5) == 0.25


def test_learns_what_the_rows_say(decoder: Decoder, tmp_path: Path) -> None:
    assert trainer(decoder, tmp_path, 120).run(never)
    losses = [line["loss"] for line in Journal(tmp_path / "sft.jsonl").lines()]
    assert losses[-1] < 0.5 * max(losses)
    assert Journal(tmp_path / "sft.jsonl").lines()[-1]["step"] == 120


def test_tells_which_sessions_it_learnt_from(decoder: Decoder, tmp_path: Path) -> None:
    told: list[str] = []
    model, budget = trainer_of(decoder, tmp_path), Budget(steps=20)
    sft = Sft(model, ROWS, tmp_path, budget, CONFIG, vocab_size=40, trained=told.extend)
    assert sft.run(never) and sorted(told) == sorted(f"s{i}" for i in range(30))


def test_stops_when_told(decoder: Decoder, tmp_path: Path) -> None:
    asked = iter([False] * 5 + [True])
    sft = trainer(decoder, tmp_path, 20)
    assert not sft.run(lambda: next(asked)) and sft.step == 5


def test_a_killed_run_goes_on_from_its_last_state(decoder: Decoder, tmp_path: Path) -> None:
    first = trainer(decoder, tmp_path, 250)
    asked = iter([False] * 130 + [True])
    assert not first.run(lambda: next(asked))
    torch.manual_seed(9)
    second = trainer(Decoder(decoder.config), tmp_path, 250)
    assert second.step == 100 and second.cpu_s > 0
    assert second.run(never) and second.step == 250


@pytest.mark.parametrize("kill", [0, 3, 8, 13, 16, 20, 33, 59, 60])
def test_killed_at_any_step_it_ends_with_the_same_weights_to_the_bit(
    kill: int, decoder: Decoder, tmp_path: Path
) -> None:
    start = {name: tensor.clone() for name, tensor in decoder.state_dict().items()}
    told = dict[str, set[str]](killed=set(), whole=set())

    def run(folder: str, stop: Callable[[], bool] = never) -> dict[str, torch.Tensor]:
        decoder.load_state_dict(start)
        model, config = trainer_of(decoder, tmp_path / folder), SftConfig(save_every=8)
        sft = Sft(
            model,
            ROWS,
            tmp_path / folder,
            Budget(steps=60),
            config,
            vocab_size=40,
            trained=told[folder].update,
        )
        sft.run(stop)
        return {name: tensor.clone() for name, tensor in decoder.state_dict().items()}

    asked = iter([False] * kill)
    run("killed", lambda: next(asked, True))
    ours, theirs = run("killed"), run("whole")
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    assert told["killed"] == told["whole"] == {row.session_id for row in ROWS}


@pytest.mark.parametrize(
    ("rows", "seed", "why"), [(ROWS, 1, "began with seed 0"), (ROWS[1:], 0, "other lessons")]
)
def test_a_run_that_began_otherwise_cannot_go_on(
    rows: Sequence[Row], seed: int, why: str, decoder: Decoder, tmp_path: Path
) -> None:
    trainer(decoder, tmp_path, 20).run(never)
    model, budget = trainer_of(decoder, tmp_path), Budget(steps=20)
    with pytest.raises(StateError, match=why):
        Sft(model, rows, tmp_path, budget, CONFIG, vocab_size=40, seed=seed)


def lessons(store: Store) -> None:
    """Sessions of a teacher who always says the same."""
    for i in range(24):
        session = Session(
            id=f"s{i}",
            source=Source.TEACHER,
            user="t",
            arm="t",
            task_id=None,
            harness="h",
            started_at=0.0,
            ending=Ending.FINISHED,
        )
        said = Completion(ids=(5, 6), logprobs=(0.0, 0.0), versions=(-1, -1), finish=FinishReason.STOP)
        turn = Turn(
            session_id=session.id,
            index=0,
            segment=0,
            arm="t",
            prompt_ids=(1, 2, i),
            completion=said,
            started_at=0.0,
            latency_s=0.0,
        )
        store.record([turn], (), [session])


@pytest.mark.slow
def test_the_command_leaves_a_checkpoint_and_version_0(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["def alpha(x): return x + 1"] * 3, 280, [])
    config = ModelConfig(vocab_size=tokenizer.vocab_size, hidden_size=32, layers=1, heads=1, kv_heads=1)
    save(tmp_path / "start", Decoder(config), tokenizer, version=0)
    store = Store.open(tmp_path / "store.db")
    lessons(store)
    command = [
        *(sys.executable, "-m", "ostinato.train.sft", "--store", str(tmp_path / "store.db"), "--steps", "40"),
        *("--checkpoint", str(tmp_path / "start"), "--out", str(tmp_path / "out")),
        *("--objects", str(tmp_path / "objects"), "--run-dir", str(tmp_path / "run")),
    ]
    for _ in range(2):  # the second time there is nothing left to do
        assert subprocess.run(command, check=False).returncode == 0
    decoder, _, _ = load(tmp_path / "out")
    published = Subscriber(Objects.open(tmp_path / "objects")).fetch(0)
    assert all(torch.equal(tensor, published[name]) for name, tensor in decoder.state_dict().items())
    assert load_meta(tmp_path / "out").version == 0
    assert Ledger(store).states()[State.TRAINED] == 24
    assert [(row.version, row.kind) for row in store.versions()] == [(0, "anchor")]
