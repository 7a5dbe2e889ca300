"""The size and speed of weight deltas beside other encodings, synthetic and real.

    python -m benchmarks.codec [--json] [--traces runs/traces …] [--rates 1e-6 3e-6 1e-5 3e-5 1e-4] [--runs 9]

The synthetic weights are 4 M values of N(0, 0.02), fp32 masters and bf16 copies, with one Adam step (betas
0.9, 0.95) after 24 on gradient noise whose scale differs from weight to weight. The real ones are pairs
written by `benchmarks.traces`, or from a checkpoint by `benchmarks.model_traces`, which must run before;
without them the figures named `delta_…` are null. `delta_ratio_1e6` and `delta_ratio_5e6` are those of the
first folder of traces at these rates; `bits_over_floor` is the worst of all pairs.
No ratio means anything without its learning rate.

The peers, each at its best setting, in the same run: gaps in 16 bits and new values, zstd (PULSE sends this;
values as they are or by byte, whichever is smaller); xor and zstd (as it is or by byte); 4 bytes of index and
2 of value (COO); the whole copy in zstd; and, where installed, zipnn on the whole.

`floor` is the size of places and values when each change is independent: H2(p) / p + H(step in ordinals),
without knowledge of the old values; `| exponent` is the same for each exponent of the old value on its own.

Rates are bytes of the bf16 weights per CPU second of one thread, digest included; a figure is the median of
`--runs` with its 95 % order-statistic interval (see `measure.py`).
"""

import argparse
import importlib.util
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import zstandard
from numpy.typing import NDArray

from benchmarks.measure import Figure, Run, quantile, table
from benchmarks.traces import INDEX, copies, pairs
from ostinato.sync.codec import decode, encode
from ostinato.sync.quantise import quantised
from ostinato.sync.weights import Blob, Blobs, make_blob, to_blobs

COUNT, ROWS, STEPS, STD = 1 << 22, 1 << 11, 24, 0.02
ONE_PERCENT = 0.01
LEVEL = 1
EXPONENT = 7
"""The lowest bit of the exponent of a bf16."""

Words = NDArray[np.uint16]
Pair = tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]
"""The weights before and after a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One step of one set of weights, with sizes in bytes and `bits` per changed value."""

    weights: str
    rate: float
    changed: float
    ratio: float
    """The size of the bf16 weights divided by that of the delta."""
    bits: float
    floor: float
    floor_given_exponent: float
    ours: int
    gap16_zstd: int
    xor_zstd: int
    coo: int
    codecs: dict[str, int]

    def cells(self) -> list[str]:
        whole = self.ratio * self.ours
        others = (f"{whole / size:.1f}" for size in (self.gap16_zstd, self.xor_zstd, self.coo))
        bits = f"{self.bits:.2f}", f"{self.floor:.2f}", f"{self.floor_given_exponent:.2f}"
        return [self.weights, f"{self.rate:.2g}", f"{self.changed:.3%}", f"{self.ratio:.1f}", *bits, *others]


HEADER = ["weights", "rate", "changed", "ours ×", "bits", "floor", "| exponent", "gap16 ×", "xor ×", "COO ×"]


def synthetic() -> Callable[[float], Pair]:
    """Return a function from a rate to masters before and after a step, whose direction is drawn once."""
    random = np.random.default_rng(0)
    weights = (random.standard_normal((ROWS, COUNT // ROWS)) * STD).astype(np.float32)
    scale = np.exp(random.standard_normal(weights.shape)).astype(np.float32)
    m, v = np.zeros_like(weights), np.zeros_like(weights)
    for _ in range(STEPS):
        gradient = random.standard_normal(weights.shape, dtype=np.float32) * scale
        m += 0.1 * (gradient - m)
        v += 0.05 * (gradient * gradient - v)
    step = (m / (1 - 0.9**STEPS)) / (np.sqrt(v / (1 - 0.95**STEPS)) + 1e-8)

    def at(rate: float) -> Pair:
        return {"w": torch.from_numpy(weights)}, {"w": torch.from_numpy(weights - np.float32(rate) * step)}

    return at


def in_bf16(pair: Pair) -> tuple[Blobs, Blobs]:
    """Return the serving copies of a pair."""
    before, after = ({name: w.bfloat16() for name, w in tensors.items()} for tensors in pair)
    return to_blobs(before, copy=True), to_blobs(after, copy=True)


def in_int8(name: str, rate: float, pair: Pair) -> dict[str, object]:
    """Return the delta for a reader of 8-bit codes; `ratio` is the size of codes and scales over it."""
    before, after = (to_blobs(quantised(tensors), copy=True) for tensors in pair)
    codes = [key for key in after if after[key].dtype == "int8"]
    changed = sum(int((before[key].data != after[key].data).sum()) for key in codes)
    sizes = {key: len(encode(before[key], after[key])[1]) for key in after}
    return {
        "weights": name,
        "rate": rate,
        "changed": changed / sum(after[key].data.size for key in codes),
        "bits": 8 * sum(sizes.values()) / changed,
        "bits_of_codes": 8 * sum(sizes[key] for key in codes) / changed,
        "ratio": sum(blob.data.size for blob in after.values()) / sum(sizes.values()),
    }


def words(blob: Blob) -> Words:
    return blob.data.view(np.uint16)


def fraction(before: Blobs, after: Blobs) -> float:
    differ = sum(int((words(before[name]) != words(after[name])).sum()) for name in after)
    return differ / sum(len(words(blob)) for blob in after.values())


def rate_of_one_percent(at: Callable[[float], Pair]) -> float:
    low, high = 1e-8, 1e-4
    for _ in range(12):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fraction(*in_bf16(at(middle))) > ONE_PERCENT else (middle, high)
    return math.sqrt(low * high)


def zipped(data: NDArray[np.generic]) -> int:
    return len(zstandard.ZstdCompressor(level=LEVEL).compress(data.tobytes()))


def either(values: Words) -> int:
    """Return the size in zstd of the words as they are or by byte, whichever is smaller."""
    return min(
        zipped(values), zipped((values & 0xFF).astype(np.uint8)) + zipped((values >> 8).astype(np.uint8))
    )


def gap16(old: Words, new: Words) -> int:
    """Return the size of gaps of 16 bits (a longer one in several words) and new values, in zstd."""
    places = np.flatnonzero(old != new)
    gaps = np.diff(places, prepend=-1) - 1
    long = np.full(int((gaps // 0xFFFF).sum()), 0xFFFF, np.uint16)
    return zipped(np.concatenate(((gaps % 0xFFFF).astype(np.uint16), long))) + either(new[places])


def entropy(values: NDArray[np.integer]) -> float:
    """Return the bits of all values together, from their own frequencies."""
    _, counts = np.unique(values, return_counts=True)
    return float(-(counts * np.log2(counts / counts.sum())).sum())


def needed(old: Words, new: Words) -> float:
    """Return the bits for the places of changes and for the steps, if all were independent."""
    flags = old != new
    return entropy(flags) + entropy(ordinals(new[flags]) - ordinals(old[flags]))


def ordinals(values: Words) -> NDArray[np.int64]:
    signed = values.astype(np.int64)
    return np.where(signed < 0x8000, signed, 0x7FFF - signed)


def floors(before: Blobs, after: Blobs) -> tuple[float, float]:
    """Return the least bits per changed value, without the old values and with their exponents."""
    old, new = (np.concatenate([words(blobs[name]) for name in after]) for blobs in (before, after))
    exponents = old >> EXPONENT & 0xFF
    each = (exponents == exponent for exponent in np.unique(exponents))
    changed = int((old != new).sum())
    return needed(old, new) / changed, sum(needed(old[mine], new[mine]) for mine in each) / changed


def compare(name: str, rate: float, before: Blobs, after: Blobs) -> Row:
    payloads = {key: encode(before[key], after[key]) for key in after}
    for key, (codec, payload) in payloads.items():
        back = decode(codec, before[key], payload, after[key].dtype, after[key].shape)
        assert back.digest == after[key].digest, key
    each = [(words(before[key]), words(after[key])) for key in after]
    changed = sum(int((old != new).sum()) for old, new in each)
    ours = sum(len(payload) for _, payload in payloads.values())
    whole = sum(len(new) for _, new in each)
    codecs: dict[str, int] = {}
    for codec, payload in payloads.values():
        codecs[codec] = codecs.get(codec, 0) + len(payload)
    blind, seeing = floors(before, after)
    return Row(
        weights=name,
        rate=rate,
        changed=changed / whole,
        ratio=2 * whole / ours,
        bits=8 * ours / changed,
        floor=blind,
        floor_given_exponent=seeing,
        ours=ours,
        gap16_zstd=sum(gap16(old, new) for old, new in each),
        xor_zstd=sum(either(old ^ new) for old, new in each),
        coo=6 * changed,
        codecs=codecs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The speed in MB of bf16 weights per CPU second."""

    weights: str
    rate: float
    encode: Figure
    decode: Figure
    zstd: Figure
    """The peer: the whole copy through zstd."""


def speed(name: str, rate: float, before: Blobs, after: Blobs, runs: int) -> Speed:
    payloads = {key: encode(before[key], after[key]) for key in after}
    size = sum(blob.data.size for blob in after.values()) / 1e6

    def encoded() -> None:
        for key, blob in after.items():
            encode(before[key], make_blob(blob.dtype, blob.shape, blob.data))

    def decoded() -> None:
        for key, (codec, payload) in payloads.items():
            decode(codec, before[key], payload, after[key].dtype, after[key].shape)

    def compressed() -> None:
        for blob in after.values():
            zipped(blob.data)

    works = {"encode": encoded, "decode": decoded, "zstd": compressed}
    seconds = [{key: taken(work) for key, work in works.items()} for _ in range(runs + 1)][1:]
    figures = {key: quantile([size / each[key] for each in seconds]) for key in works}
    return Speed(weights=name, rate=rate, **figures)


def taken(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def real(folders: Sequence[Path]) -> Iterator[tuple[str, float, Pair]]:
    """Yield the written pairs, none without a trace."""
    for folder in folders:
        for pair in pairs(folder) if (folder / INDEX).exists() else []:
            yield f"{folder.name}, {pair.before} to {pair.after}", pair.rate, copies(folder, pair)


def whole_copy(blobs: Blobs) -> dict[str, float]:
    """Return the ratio for a full copy by the anchor codec, plain zstd, and zipnn if it is installed."""
    size = sum(blob.data.size for blob in blobs.values())
    ratios_by_codec = {
        "ours": size / sum(len(encode(None, blob)[1]) for blob in blobs.values()),
        "zstd": size / sum(zipped(blob.data) for blob in blobs.values()),
    }
    if importlib.util.find_spec("zipnn"):
        from zipnn import ZipNN

        peer = ZipNN(bytearray_dtype="bfloat16", input_format="byte")
        ratios_by_codec["zipnn"] = size / sum(
            len(peer.compress(blob.data.tobytes())) for blob in blobs.values()
        )
    return ratios_by_codec


def main(run: Run) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, nargs="+", default=[Path("runs/traces")])
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-6, 3e-6, 1e-5, 3e-5, 1e-4])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    options = parser.parse_args()
    torch.set_num_threads(1)
    at = synthetic()
    usual = rate_of_one_percent(at)
    rows = [compare("synthetic", rate, *in_bf16(at(rate))) for rate in (usual, *options.rates)]
    traced = [compare(name, rate, *in_bf16(pair)) for name, rate, pair in real(options.traces)]
    table(HEADER, [row.cells() for row in (*rows, *traced)])
    shown = [("synthetic", usual, at(usual)), *islice(real(options.traces), 1)]
    speeds = [speed(name, rate, *in_bf16(pair), options.runs) for name, rate, pair in shown]
    show(speeds)
    small = [in_int8(*each) for each in shown]
    for row in small:
        print(
            "in int8:", ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else str(v) for k, v in row.items())
        )
    whole = whole_copy(in_bf16(shown[-1][2])[1])
    print("a full copy:", ", ".join(f"{name} {ratio:.2f} ×" for name, ratio in whole.items()))
    extra = {"speeds": [asdict(each) for each in speeds], "int8": small, "full_copy": whole}
    run.finish(figures(rows, traced, speeds) | extra, as_json=options.json)


def show(speeds: list[Speed]) -> None:
    print()
    cells = [[s.weights, f"{s.rate:.2g}", s.encode.text(0), s.decode.text(0), s.zstd.text(0)] for s in speeds]
    table(["weights", "rate", "encode MB/CPU s", "decode MB/CPU s", "zstd MB/CPU s"], cells)


def figures(rows: list[Row], traced: list[Row], speeds: list[Speed]) -> dict[str, object]:
    """Return the figures of `--json`: the synthetic step at 1 %, and the least gain of the real ones."""
    first, usual, last = rows[0], speeds[0], speeds[-1]
    at_rate = {row.rate: row.ratio for row in reversed(traced)}
    return {
        "rate_at_1pct": first.rate,
        "ratio_at_1pct": first.ratio,
        "bits_per_changed": first.bits,
        "floor_bits": first.floor,
        "floor_bits_given_exponent": first.floor_given_exponent,
        "delta_ratio_1e6": at_rate.get(1e-6),
        "delta_ratio_5e6": at_rate.get(5e-6),
        "delta_vs_gap16": min((row.gap16_zstd / row.ours for row in traced), default=None),
        "delta_vs_xor": min((row.xor_zstd / row.ours for row in traced), default=None),
        "bits_over_floor": max((row.bits / row.floor_given_exponent for row in traced), default=None),
        "real_encode_mb_s": last.encode.value,
        "real_decode_mb_s": last.decode.value,
        "encode_mb_s": usual.encode.value,
        "decode_mb_s": usual.decode.value,
        "rows": [asdict(row) for row in (*rows, *traced)],
    }


if __name__ == "__main__":
    with Run("codec", "numpy", "torch", "zstandard") as opened:
        main(opened)
