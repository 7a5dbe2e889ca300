"""Other trainers read what `ostinato export` writes, and learn from the tokens that were sampled alone.

Covers exchange/dataset.py: TRL, SkyRL and the renderers of prime-rl, each as its package has it.
"""

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from tests.clients.install import PACKAGES
from tests.exchange.talk import STORY, checkpoint, record, turns

from ostinato.cli import main
from ostinato.store import Store

PEERS = PACKAGES["skyrl"]
WORKER = Path(__file__).with_name("trainers.py")
pytestmark = [
    pytest.mark.clients,
    pytest.mark.slow,
    pytest.mark.skipif(PEERS.missing is not None, reason=PEERS.missing or ""),
]


def test_trl_skyrl_and_prime_rl_read_an_export(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "run" / "checkpoints" / "start")
    with closing(Store.open(tmp_path / "run" / "store.db")) as store:
        store.accounts.set_consent(user="ada", granted=True, by="ada")
        record(store, "s1", total=0.5)
        record(store, "s2", turns("s2", STORY[:5]), total=-1.0)
    for form in ("jsonl", "tokens"):
        words = ["export", str(tmp_path / form), "--directory", str(tmp_path / "run"), "--format", form]
        assert main(words) == 0
    command = [str(PEERS.home / "bin" / "python"), str(WORKER)]
    command += [str(tmp_path / "tokens"), str(tmp_path / "jsonl"), str(model)]
    alone = {"HF_HUB_OFFLINE": "1", "HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=alone)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])

    recorded = [turns("s1"), turns("s2", STORY[:5])]
    whole = {(*some[-1].prompt_ids, *some[-1].completion.ids) for some in recorded}
    sampled = {tuple(id for turn in some for id in turn.completion.ids) for some in recorded}
    assert {tuple(each["ids"]) for each in told["trl_tokens"]} == whole
    learnt = {tuple(id for id in each["labels"] if id != -100) for each in told["trl_tokens"]}
    assert learnt == sampled
    for each in told["trl_tokens"]:
        assert each["loss"] == pytest.approx(each["ours"], rel=1e-5)
    assert {tuple(each) for each in told["skyrl"]["whole"]} == whole
    assert {tuple(each) for each in told["skyrl"]["learnt"]} == sampled
    assert {value for each in told["skyrl"]["logprobs"] for value in each} == {-0.5}
    assert sorted(told["skyrl"]["reward"]) == [-1.0, 0.5]
    # A chat template ends the last message with a line end, which no model sampled.
    assert {tuple(each["ids"][:-1]) for each in told["trl_chat"]} == whole
    assert {tuple(ids[:-1]) for ids in told["prime_rl"]} == whole
