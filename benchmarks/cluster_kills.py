"""What practice on a cluster loses when anything under it dies: the part `--kills` of `benchmarks.cluster`.

Asynchronous practice with two samplers, two ranks of a learner and a small random model, on a Ray cluster of
three nodes that are processes of this machine, with the record on a real PostgreSQL and the weights on a
server that speaks S3. At random times one of these is killed: a node (all of its processes; a new one joins),
a service's actor, the process of a service, one of the learner's ranks, the conductor, a backend of
PostgreSQL, that server as a whole, or the other one; conductor and servers are started again. Meanwhile a
client of its own asks the gateway for turns, and notes those that it was told of.

- *trained_twice*, *lost* (prompts, slots and turns without an end or a reason, ended sessions sampled again),
  *turns_lost* (turns that the client was told of and that are not in the record) and *hangs* (runs without a
  new row for `--patience` seconds) must be 0.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
import uuid
from collections import Counter
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fuzz.bucket import BUCKET, BucketServer
from fuzz.postgres import PostgresServer, name_of
from fuzz.ray_nodes import add_node, pids_of, signal_all, three_nodes

from benchmarks.faults import MODULES, Real, count_rows, descendants, record_of
from ostinato.loop.run import Run
from ostinato.store import Store, StoreError
from ostinato.store.accounts import hash_key, new_key
from ostinato.store.ledger.turn_states import turns_of_sessions
from ostinato.types import Source

PRACTICE = """
[sandbox]
backend = "process"
[engine]
slots = 24
context = 512
[practice]
mode = "asynchronous"
group_size = 4
groups_at_once = 2
ready_ahead = 3
samplers = 2
lease_s = 20.0
[refine]
versions = {versions}
groups = 2
[trainer]
kind = "fsdp"
ranks = 2
[schedule]
stages = ["practice"]
[model]
path = "{start}"
[placement]
kind = "ray"
address = "{address}"
[placement.resources.engine]
cpus = 0.5
[placement.resources.gateway]
cpus = 0.5
[placement.resources.learner]
cpus = 0.5
[placement.resources.sampler]
cpus = 0.5
[store]
url = "{record}"
objects = "{objects}"
"""
KINDS = ("node", "actor", *MODULES, "rank", "conductor", "backend", "database", "bucket")
TURNS = 4
"""The turns of a session of the client."""
ANSWER_S = 60.0
AWAY_S = 5.0
"""The longest time for which a server that was killed stays away."""
ATTEMPTS = 20
"""Attempts to start something again on a busy machine."""
QUESTION = {"model": "ostinato", "messages": [{"role": "user", "content": "Go on."}], "max_tokens": 4}


MUST_BE_ZERO = ("trained_twice", "lost", "turns_lost", "hangs")


def killed(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of runs that were killed until there were enough kills."""
    with (
        TemporaryDirectory() as folder,
        PostgresServer() as server,
        three_nodes() as cluster,
        BucketServer(Path(folder) / "bucket") as bucket,
    ):
        os.environ |= bucket.environment
        counts = ClusterKills(Path(folder), options, cluster, server, bucket).run()
    return {
        "kills": counts["real_kills"],
        "runs": counts["runs"],
        "restarts": counts["restarts"],
        "trained_twice": counts["trained_twice"],
        "lost": counts["lost"] + counts["unended"],
        "turns_told": counts["told"],
        "turns_lost": counts["turns_lost"],
        "hangs": counts["hangs"],
        "killed": {kind: counts[f"killed {kind}"] for kind in KINDS},
    }


class ClusterKills(Real):
    """Runs on a cluster, killed until there were enough kills."""

    def __init__(
        self,
        folder: Path,
        options: argparse.Namespace,
        cluster: Any,
        server: PostgresServer,
        bucket: BucketServer,
    ) -> None:
        super().__init__(folder, options)
        self._versions = options.versions
        self._cluster = cluster
        self._server = server
        self._bucket = bucket
        self._record = ""
        self._seen = -1

    def run(self) -> Counter[str]:
        start = self._start()
        while self.counts["real_kills"] < self._kills:
            self.counts["runs"] += 1
            self._practise(start, f"killed-{self.counts['runs']}", killing=True)
            print(f"run {self.counts['runs']}: {dict(self.counts)}", file=sys.stderr, flush=True)
        return self.counts

    def _settings(self, start: Path) -> str:
        self._record, self._seen = self._server.new(), -1
        address, record = self._cluster.address, self._record.replace("+psycopg", "")
        objects = f"s3://{BUCKET}/{name_of(self._record)}"
        return PRACTICE.format(
            start=start, versions=self._versions, address=address, record=record, objects=objects
        )

    def _practise(self, start: Path, name: str, *, killing: bool) -> str:
        client = Client(Run(directory=self._folder / name))
        client.start()
        try:
            return super()._practise(start, name, killing=killing)
        finally:
            self.counts["turns_lost"] += client.lost()
            self.counts["told"] += len(client.told)

    def _verdict(self, directory: Path) -> str:
        """Count as `Real` does, without the turns of the client's own sessions, which nobody has ended."""
        root = super()._verdict(directory)
        with closing(Store.open(record_of(directory))) as store, store.database.read() as connection:
            sessions = [each.id for each in store.sessions() if each.source is Source.BENCH]
            self.counts["unended"] -= len(turns_of_sessions(connection, sessions, without_state=True))
        return root

    def _rows(self, directory: Path) -> int:
        with suppress(StoreError):  # a server that is away shows no new row
            self._seen = count_rows(directory)
        return self._seen

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        kind = self._chance.choice(KINDS)
        done = {
            "node": self._kill_node,
            "conductor": lambda: process.poll() is None and hit(process.pid),
            "backend": self._kill_backend,
            "database": self._kill_database,
            "bucket": self._kill_bucket,
        }.get(kind, lambda: self._kill_one_of(kind))()
        if done:
            self.counts["real_kills"] += 1
            self.counts[f"killed {kind}"] += 1
            print(f"{time.strftime('%H:%M:%S')} killed {kind}", file=sys.stderr, flush=True)

    def _kill_one_of(self, kind: str) -> bool:
        """Kill an actor, the process of a service, or a rank of the learner."""

        def wanted(words: list[str]) -> bool:
            if kind == "actor":
                return words[0].startswith("ray::ServiceActor")
            return MODULES["trainer" if kind == "rank" else kind] in words

        victims = descendants(os.getpid(), wanted)
        if kind == "rank":
            victims = [pid for pid in victims if b"LOCAL_RANK=" in environment(pid)]
        if kind == "trainer":
            victims = [pid for pid in victims if b"LOCAL_RANK=" not in environment(pid)]
        return bool(victims) and hit(self._chance.choice(victims))

    def _kill_node(self) -> bool:
        """Kill all processes of a node that is not the head, which no run outlives, and add a new one."""
        node = self._chance.choice([each for each in self._cluster.list_all_nodes() if not each.head])
        signal_all(pids_of(node), signal.SIGKILL)
        self._cluster.remove_node(node, allow_graceful=False)
        add_node(self._cluster, "r1")
        return True

    def _kill_backend(self) -> bool:
        backends = self._server.backends(name_of(self._record))
        return bool(backends) and hit(self._chance.choice(backends))

    def _kill_database(self) -> bool:
        self._server.stop(signal.SIGKILL)
        time.sleep(self._chance.uniform(0.0, AWAY_S))
        for attempt in range(ATTEMPTS):
            try:
                self._server.start()  # refused while sessions of the killed server end
                return True
            except RuntimeError:
                if attempt == ATTEMPTS - 1:
                    raise
                time.sleep(0.5)
        return False

    def _kill_bucket(self) -> bool:
        self._bucket.kill()
        time.sleep(self._chance.uniform(0.0, AWAY_S))
        self._bucket.start()
        return True


def hit(pid: int) -> bool:
    """Kill a process; return whether it was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def environment(pid: int) -> bytes:
    """Return the environment that a process began with; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


class Client(threading.Thread):
    """A client of a run's gateway, which asks for one turn after another and notes those it was told of."""

    def __init__(self, run: Run) -> None:
        super().__init__(daemon=True)
        self._run = run
        self._key = ""
        self._over = threading.Event()
        self.told: set[str] = set()

    def run(self) -> None:
        session = uuid.uuid4().hex
        while not self._over.wait(0.2):
            try:
                if not self._key:
                    self._key = self._new_key()
                self.told.add(self._turn(session))
            except (OSError, HTTPException, ValueError, KeyError, StoreError):
                session = uuid.uuid4().hex  # what is not there yet, or away, is asked again
                self._over.wait(1.0)
            if len(self.told) % TURNS == 0:
                session = uuid.uuid4().hex

    def _new_key(self) -> str:
        if not self._run.processes.exists():
            raise KeyError("the run has not begun")
        key = new_key()
        with closing(self._run.open_store()) as store:
            store.add_key(hash_key(key), "client", "admin", "practice")
        return key

    def _turn(self, session: str) -> str:
        """Ask for a turn and return its id. Raises OSError for a gateway that is away or refuses."""
        own = tomllib.loads(self._run.processes.read_text())["gateway"]
        request = urllib.request.Request(
            f"http://{own['host']}:{own['port']}/v1/chat/completions",
            data=json.dumps(QUESTION).encode(),
            headers={
                "Authorization": f"Bearer {self._key}",
                "Content-Type": "application/json",
                "X-Session-Id": session,
                "X-Session-Source": Source.BENCH.value,
            },
        )
        with urllib.request.urlopen(request, timeout=ANSWER_S) as response:
            told = json.loads(response.read())["ostinato"]
        return f"{told['session']}/{told['turn']}"

    def lost(self) -> int:
        """End, and return how many turns that it was told of are not in the record."""
        self._over.set()
        self.join()
        with closing(self._run.open_store()) as store:
            stored = store.turns_of({turn.rpartition("/")[0] for turn in self.told})
        return len(self.told - {turn.id for turns in stored.values() for turn in turns})
