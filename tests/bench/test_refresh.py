"""The fence and the refresh of a suite: what training has seen, and what everybody solves, leaves it.

Covers bench/fence.py, bench/refresh.py and loop/suites/refresh.py.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.bench.fence import Exposure, exposures, overlaps, task_text, training_texts
from ostinato.bench.refresh import Retirement, retire, retirements
from ostinato.bench.suite import BenchSuite, SuiteError, open_suite, seal
from ostinato.cli import main
from ostinato.data.fence import WORDS
from ostinato.loop.run import START, Run
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.store.ledger.ledger import Ledger
from ostinato.store.ledger.phases import Stage
from ostinato.store.passes import Passes, PassKey
from ostinato.tasks.pebble import generate, provide
from ostinato.types import Completion, FinishReason, Session, Source, Turn

LETTERS = [chr(97 + index) for index in range(26)]


@pytest.fixture
def suite(tmp_path: Path) -> BenchSuite:
    folder = tmp_path / "suite"
    for seed in range(4):
        pebble = generate("fix", "seeds", seed)
        provide(pebble, folder / pebble.id)
    return seal(folder, "small")


def record(store: Store, source: Source, text: str, tokenizer: Tokenizer) -> None:
    """A session of one turn, whose prompt is `text`."""
    id = f"{source.value}-{len(store.sessions())}"
    store.start_session(
        Session(id=id, source=source, user="ada", arm="main", task_id=None, harness="9f", started_at=1.0)
    )
    ids = tuple(tokenizer.encode("ok"))
    completion = Completion(
        ids=ids, logprobs=(0.0,) * len(ids), versions=(1,) * len(ids), finish=FinishReason.STOP
    )
    prompt = tuple(tokenizer.encode(text))
    turn = Turn(
        session_id=id,
        index=0,
        segment=0,
        arm="main",
        prompt_ids=prompt,
        completion=completion,
        started_at=1.0,
        latency_s=0.1,
    )
    store.record([turn], [])


def finish(store: Store, suite: BenchSuite, side: str, task: str, solved: list[bool]) -> None:
    for number, each in enumerate(solved):
        key = PassKey(suite=suite.label, hash=suite.hash, side=side, task=task, number=number)
        Passes(store.database).begin(key, f"{side}-{task}-{number}")
        assert Passes(store.database).finish(key, f"{side}-{task}-{number}", {"solved": each})


@given(st.lists(st.sampled_from(LETTERS), min_size=WORDS, max_size=60), st.integers(0, 60))
def test_a_text_overlaps_with_what_holds_it_and_only_then(words: list[str], cut: int) -> None:
    text = " ".join(words)
    assert overlaps({"a": text}, [f"before {text.upper()} after"]) == {"a": 1.0}
    assert overlaps({"a": text}, [" ".join(words[: WORDS - 1]), " # ".join(words)]) == {"a": 0.0}
    part = overlaps({"a": text}, [" ".join(words[:cut]), " ".join(words[cut:])])["a"]
    assert part is not None and 0 <= part <= 1


def test_a_task_with_few_words_has_no_overlap() -> None:
    assert overlaps({"a": "mend it", "b": " ".join(LETTERS)}, []) == {"a": None, "b": 0.0}
    assert not Exposure(stage=None, overlap=None).leaked


def test_keys_and_text_of_training_are_found_and_those_of_the_bench_are_not(
    suite: BenchSuite, tmp_path: Path
) -> None:
    store, tokenizer = Store.open(tmp_path / "store.db"), Tokenizer.train(["a b"], 300)
    first, second, third, fourth = suite.tasks
    assert Ledger(store).reserve(first.key, Stage.LIVE)
    Ledger(store).hold_out([second.key])
    record(store, Source.PRACTICE, task_text(third), tokenizer)
    record(store, Source.BENCH, task_text(fourth), tokenizer)
    seen = exposures(store, suite.tasks, training_texts(store, tokenizer.decode))
    assert (seen[first.id].stage, seen[second.id].stage) == (Stage.LIVE, None)
    assert (seen[third.id].overlap, seen[third.id].leaked) == (1.0, True)
    assert not seen[fourth.id].leaked and not seen[second.id].leaked
    store.close()


def test_what_everybody_solves_leaves_and_the_suite_gets_a_version(suite: BenchSuite, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    easy, hard, once, _ = (task.id for task in suite.tasks)
    for side in ("a", "b"):
        finish(store, suite, side, easy, [True, True])
        finish(store, suite, side, hard, [True, side == "a"])
    finish(store, suite, "a", once, [True, True, True, True])  # the other side has no pass of it
    leaving = retirements(suite, Passes(store.database), {})
    assert leaving == [Retirement(task=easy, reason="solved in all 4 passes of 2 sides")]
    after = retire(tmp_path / "suite", suite, leaving, tmp_path / "gone")
    assert (after.version, len(after.tasks)) == (2, 3) and after == open_suite(tmp_path / "suite")
    assert (tmp_path / "gone" / easy / "task.toml").is_file()
    store.close()


def test_nothing_moves_when_all_would_leave_or_one_is_there(suite: BenchSuite, tmp_path: Path) -> None:
    everything = [Retirement(task=task.id, reason="x") for task in suite.tasks]
    with pytest.raises(SuiteError, match="all 4 tasks would leave"):
        retire(tmp_path / "suite", suite, everything, tmp_path / "gone")
    (tmp_path / "gone" / suite.tasks[1].id).mkdir(parents=True)
    with pytest.raises(SuiteError, match=f"has a task {suite.tasks[1].id} already"):
        retire(tmp_path / "suite", suite, everything[:2], tmp_path / "gone")
    assert open_suite(tmp_path / "suite") == suite


def test_the_command(suite: BenchSuite, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(directory=tmp_path / "run")
    command = ["bench", "refresh", str(tmp_path / "suite"), "--directory", str(run.directory)]
    assert main(command) == 2
    assert "is no record" in capsys.readouterr().err
    run.store_path.parent.mkdir(parents=True, exist_ok=True)
    store, tokenizer = Store.open(run.store_path), Tokenizer.train(["a b"], 300)
    tokenizer.save(run.checkpoint(START))
    Ledger(store).reserve(suite.tasks[0].key, Stage.LESSON)
    store.close()
    assert main([*command, "--look", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [each["task"] for each in shown["retired"]] == [suite.tasks[0].id]
    assert open_suite(tmp_path / "suite") == suite
    assert main(command) == 0
    assert "its key was shown by the stage lesson\n1 of 4 tasks left; the suite is small 2" in (
        capsys.readouterr().out
    )
    assert (tmp_path / "suite-retired" / suite.tasks[0].id).is_dir()
