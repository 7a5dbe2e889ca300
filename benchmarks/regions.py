"""One bucket and three regions behind slow links: the time until all have a new version, and its bytes.

The bucket's server and each region are hosts of their own: network namespaces joined by links with a rate, a
delay and loss in both directions, which a process carries between TUN devices (`benchmarks/link.py`). Without
`/dev/net/tun` they are `veth` links that have a rate only (`tc tbf`), as the output states. The round trip
and the loss are measured before, with datagrams. A region is a mirror with a bucket of its own (a folder) and
a reader; its peers fetch the whole checkpoint, plain or by zstd. A version has arrived once its state root is
verified. Weights are bf16 and normal; a step moves a share of them by one unit in the last place.

`python -m benchmarks.regions --json`, as root.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import zstandard

from benchmarks.link import Shape, join
from benchmarks.measure import Run, quantile, table
from ostinato.store import Objects
from ostinato.sync import Publisher, Subscriber
from ostinato.sync.mirror import Mirror
from ostinato.sync.weights import state_root, to_blobs

NAME = "weights-bucket"
SETTINGS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}
FORMS = ("full", "zstd", "ours")
REGIONS = ("near", "far", "farthest")
POLL_S = 0.02


def sh(command: str) -> str:
    return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout


@contextmanager
def links(shape: Shape) -> Iterator[str]:
    """Create namespaces, `hub` and one per region with a link to it; yield a description of their shape."""
    spaces = ["ost-hub", *(f"ost-{region}" for region in REGIONS)]
    with ExitStack() as stack:
        for space in spaces:
            stack.callback(subprocess.run, ["ip", "netns", "del", space], check=False, capture_output=True)
            sh(f"ip netns add {space}")
            sh(f"ip -n {space} link set lo up")
        if Path("/dev/net/tun").exists():
            stack.enter_context(_carried(shape))
            made = f"{shape.mbit:g} Mbit/s, {shape.delay_ms:g} ms + {shape.jitter_ms:g} each direction"
            yield f"{made}, {shape.loss:.2%} lost each direction"
        else:
            _joined(shape)
            yield f"tbf {shape.mbit:g} Mbit/s (there is no /dev/net/tun: no added delay, no loss)"


@contextmanager
def _carried(shape: Shape) -> Iterator[None]:
    """Create TUN devices, and the process that carries packets between them."""
    pairs = [f"--link=ost-hub:hub{n},ost-{region}:trunk" for n, region in enumerate(REGIONS)]
    command = [sys.executable, "-m", "benchmarks.link", *pairs, "--shape", json.dumps(asdict(shape))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as carrier:
        try:
            assert carrier.stdout is not None
            carrier.stdout.readline()
            for number, region in enumerate(REGIONS):
                _address(number, region)
            yield
        finally:
            carrier.terminate()
            print("carried:", carrier.communicate()[0].strip(), file=sys.stderr)


def _joined(shape: Shape) -> None:
    """Create links of the kernel."""
    for number, region in enumerate(REGIONS):
        sh(f"ip link add hub{number} netns ost-hub type veth peer name trunk netns ost-{region}")
        _address(number, region)
        for space, device in (("ost-hub", f"hub{number}"), (f"ost-{region}", "trunk")):
            tbf = f"tbf rate {shape.mbit:g}mbit burst 64kb latency 100ms"
            sh(f"tc -n {space} qdisc add dev {device} root {tbf}")


def _address(number: int, region: str) -> None:
    for space, device, host in (("ost-hub", f"hub{number}", 1), (f"ost-{region}", "trunk", 2)):
        sh(f"ip -n {space} addr add 10.77.{number}.{host}/24 dev {device}")
        sh(f"ip -n {space} link set {device} up")


def probed() -> dict[str, Mapping[str, float]]:
    """Return the round trip and the loss of each link, measured with datagrams."""
    module = [sys.executable, "-m", "benchmarks.link"]
    command = ["ip", "netns", "exec", "ost-hub", *module, "--echo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        commands = {
            region: ["ip", "netns", "exec", f"ost-{region}", *module, "--probe", f"10.77.{number}.1"]
            for number, region in enumerate(REGIONS)
        }
        links_measured = {region: json.loads(sh(" ".join(words))) for region, words in commands.items()}
        server.kill()
    return links_measured


def crossed(region: str) -> int:
    """Return the bytes received over the link so far, headers included."""
    path = "/sys/class/net/trunk/statistics/rx_bytes"
    return int(sh(f"ip netns exec ost-{region} cat {path}"))


def weights(params: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    layer = params // 8
    return {f"layer.{i}": (0.02 * torch.randn(layer, generator=random)).to(torch.bfloat16) for i in range(8)}


def step(tensors: dict[str, torch.Tensor], changed: float, seed: int) -> dict[str, torch.Tensor]:
    """Return the next version: a share of `changed` values moves by one unit in the last place."""
    random = torch.Generator().manual_seed(seed)
    moved = {}
    for name, tensor in tensors.items():
        mask = torch.rand(tensor.shape, generator=random) < changed
        moved[name] = (tensor.view(torch.int16) + mask.to(torch.int16)).view(torch.bfloat16)
    return moved


def pack(tensors: dict[str, torch.Tensor]) -> bytes:
    return b"".join(tensor.view(torch.uint8).numpy().tobytes() for tensor in tensors.values())


class Trainer:
    """The trainer, which publishes a version in each of the forms."""

    def __init__(self, bucket: Objects) -> None:
        self._bucket = bucket
        self._publisher = Publisher(bucket)

    def publish(self, form: str, version: int, tensors: dict[str, torch.Tensor]) -> None:
        if form == "ours":
            (self._publisher.delta if version else self._publisher.anchor)(version, tensors)
        else:
            data = pack(tensors)
            whole = data if form == "full" else zstandard.ZstdCompressor(level=1).compress(data)
            self._bucket.create(f"{form}/{version}", whole)


class Region:
    """A region inside its namespace, which waits for a version and returns when it is verified."""

    def __init__(self, bucket: Objects, own: Objects, sizes: dict[str, int]) -> None:
        self._bucket = bucket
        self._sizes = sizes
        self._mirror = Mirror(bucket, own)
        self._reader = Subscriber(own)

    def wait(self, form: str, version: int) -> tuple[float, str]:
        root = self._ours(version) if form == "ours" else self._whole(form, version)
        return time.monotonic(), root

    def _ours(self, version: int) -> str:
        while self._reader.head() != version:
            if not self._mirror.step():
                time.sleep(POLL_S)
        return state_root(to_blobs(self._reader.fetch(version), copy=False))

    def _whole(self, form: str, version: int) -> str:
        while not self._bucket.exists(f"{form}/{version}"):
            time.sleep(POLL_S)
        data = self._bucket.get(f"{form}/{version}")
        whole = data if form == "full" else zstandard.ZstdDecompressor().decompress(data)
        tensor = torch.frombuffer(bytearray(whole), dtype=torch.bfloat16)
        parts = tensor.split(list(self._sizes.values()))
        return state_root(to_blobs(dict(zip(self._sizes, parts, strict=True)), copy=False))


def serve_region(folder: str, params: int) -> None:
    """Read `form version` lines and respond to each with a time and a state root."""
    sizes = {f"layer.{i}": params // 8 for i in range(8)}
    region = Region(Objects.open(f"s3://{NAME}/run"), Objects.open(folder), sizes)
    for line in sys.stdin:
        form, version = line.split()
        print(json.dumps(region.wait(form, int(version))), flush=True)


class Hosts:
    """The bucket's host, which this process enters, and a process in each region."""

    def __init__(self, stack: ExitStack, params: int) -> None:
        server = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "0.0.0.0", "-p", "9000"]
        self._start(stack, "ost-hub", server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.environ.update({**SETTINGS, "AWS_ENDPOINT": "http://10.77.0.1:9000"})
        join("ost-hub")
        self._make_bucket()
        self.bucket = Objects.open(f"s3://{NAME}/run")
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        self._regions = {}
        for number, region in enumerate(REGIONS):
            command = [sys.executable, "-m", "benchmarks.regions", "--region", f"{folder}/{region}"]
            os.environ["AWS_ENDPOINT"] = f"http://10.77.{number}.1:9000"
            self._regions[region] = self._start(
                stack,
                f"ost-{region}",
                [*command, "--params", str(params)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )

    def _start(
        self, stack: ExitStack, space: str, command: list[str], **streams: Any
    ) -> "subprocess.Popen[Any]":
        process = stack.enter_context(subprocess.Popen(["ip", "netns", "exec", space, *command], **streams))
        stack.callback(process.kill)
        return process

    def _make_bucket(self) -> None:
        request = urllib.request.Request(f"http://10.77.0.1:9000/{NAME}", method="PUT")
        for _ in range(300):
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=5):
                return
            time.sleep(0.1)
        raise RuntimeError(
            "the bucket's server does not start: is moto installed (pip install ostinato[dev])?"
        )

    def ask(self, form: str, version: int) -> None:
        for process in self._regions.values():
            process.stdin.write(f"{form} {version}\n")
            process.stdin.flush()

    def answers(self) -> dict[str, tuple[float, str]]:
        return {region: json.loads(process.stdout.readline()) for region, process in self._regions.items()}


def measure(hosts: Hosts, form: str, rounds: int, params: int, changed: float) -> dict[str, list[float]]:
    """Return the seconds until the last region has each version, and the bytes over each link for it."""
    trainer, tensors = Trainer(hosts.bucket), weights(params)
    spent: dict[str, list[float]] = {"seconds": [], "bytes": []}
    for version in range(rounds + 1):
        before = {region: crossed(region) for region in REGIONS}
        hosts.ask(form, version)
        time.sleep(0.2)
        started = time.monotonic()
        trainer.publish(form, version, tensors)
        answers = hosts.answers()
        root = state_root(to_blobs(tensors, copy=False))
        assert {got for _, got in answers.values()} == {root}, f"{form} {version}: another state root"
        if version:  # the first is the cold start, the same for all forms
            spent["seconds"].append(max(at for at, _ in answers.values()) - started)
            spent["bytes"] += [crossed(region) - before[region] for region in REGIONS]
        tensors = step(tensors, changed, seed=version)
    return spent


def main() -> int:
    options = _parse()
    torch.set_num_threads(1)
    if options.region:
        serve_region(options.region, options.params)
        return 0
    with Run("regions", "obstore", "moto", "torch") as run, ExitStack() as stack:
        shape = Shape(
            mbit=options.mbit, delay_ms=options.delay, jitter_ms=options.jitter, loss=options.loss / 100
        )
        shaped = stack.enter_context(links(shape))
        link_quality = probed()
        hosts = Hosts(stack, options.params)
        figures: dict[str, Any] = {
            "links": shaped,
            "probed": link_quality,
            "weights_mb": 2e-6 * options.params,
            "changed": options.changed,
        }
        rows = []
        for form in FORMS:
            spent = measure(hosts, form, options.rounds, options.params, options.changed)
            seconds, size = quantile(spent["seconds"]), quantile(spent["bytes"])
            figures[form] = {"seconds": asdict(seconds), "bytes_per_link": asdict(size)}
            rows.append([form, seconds.text(2), f"{size.value / 1e6:,.2f}"])
        print(f"{len(REGIONS)} regions, {shaped}")
        for region, trip in link_quality.items():
            print(f"  {region}: {', '.join(f'{name} {value:.4g}' for name, value in trip.items())}")
        table(["form", "seconds until the last region", "MB over a link"], rows)
        run.finish(figures, as_json=options.json)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regions", description=__doc__)
    parser.add_argument("--params", type=int, default=16_000_000)
    parser.add_argument("--changed", type=float, default=0.01, help="share of the weights that a step moves")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--mbit", type=float, default=50.0, help="rate of each link, each direction")
    parser.add_argument("--delay", type=float, default=40.0, help="ms, each direction")
    parser.add_argument("--jitter", type=float, default=2.0, help="ms at most, each direction")
    parser.add_argument("--loss", type=float, default=0.25, help="percent of the packets, each direction")
    parser.add_argument("--region", help="internal: be a region, with this folder as its bucket")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
