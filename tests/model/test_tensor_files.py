"""Weights are read and written one tensor at a time, whatever wrote them, and every defect is named."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ostinato.model.tensor_files import (
    CONFIG,
    INDEX,
    NAMES,
    WEIGHTS,
    CheckpointError,
    TensorFiles,
    copy_companions,
    write_tensors,
)

FLOATS = [torch.float32, torch.bfloat16, torch.float16]


def tensors(count: int = 6, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    return {f"layer.{i}.weight": torch.randn(i + 1, 5, generator=generator).to(dtype) for i in range(count)}


def assert_same(files: TensorFiles, expected: dict[str, torch.Tensor]) -> None:
    assert dict(files).keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(files.tensor(name), tensor) and files.tensor(name).dtype == tensor.dtype
        assert files.entry(name).shape == tuple(tensor.shape)


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_safetensors_wrote_is_read(dtype: torch.dtype, tmp_path: Path) -> None:
    save_file(tensors(dtype=dtype), tmp_path / WEIGHTS)
    assert_same(TensorFiles.open(tmp_path), tensors(dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_safetensors_reads_what_was_written(dtype: torch.dtype, tmp_path: Path) -> None:
    write_tensors(tmp_path, tensors(dtype=dtype).items())
    assert load_file(tmp_path / WEIGHTS).keys() == tensors().keys()
    for name, tensor in load_file(tmp_path / WEIGHTS).items():
        assert torch.equal(tensor, tensors(dtype=dtype)[name])


@given(
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=12),
    most=st.integers(1, 2000),
    dtype=st.sampled_from(sorted(NAMES, key=str)),
)
def test_any_shapes_in_any_shards_come_back(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[list[int]], most: int, dtype: torch.dtype
) -> None:
    directory = tmp_path_factory.mktemp("shards")
    written = {f"t{i}": torch.randn(shape).to(dtype) for i, shape in enumerate(shapes)}
    write_tensors(directory, written.items(), max_shard_bytes=most)
    files = TensorFiles.open(directory)
    assert_same(files, written)
    assert files.size == sum(tensor.nbytes for tensor in written.values())
    for path in files.files:
        held = [entry for entry in files.entries.values() if entry.path == path]
        assert len(held) == 1 or sum(entry.size for entry in held) <= most


def test_a_shard_ends_where_its_header_is_full(tmp_path: Path) -> None:
    many = {f"{i:0200}": torch.full((1,), float(i)) for i in range(400)}
    write_tensors(tmp_path, many.items())
    files = TensorFiles.open(tmp_path)
    assert len(files.files) > 1
    assert_same(files, many)


def test_a_slice_that_is_not_contiguous_is_written_whole(tmp_path: Path) -> None:
    matrix = torch.arange(12.0).view(3, 4)
    write_tensors(tmp_path, [("columns", matrix[:, 1:3]), ("turned", matrix.T)])
    assert_same(TensorFiles.open(tmp_path), {"columns": matrix[:, 1:3], "turned": matrix.T})


def test_new_weights_replace_old_ones_whatever_their_files_were(tmp_path: Path) -> None:
    write_tensors(tmp_path, tensors(9).items(), max_shard_bytes=100)
    digest = TensorFiles.open(tmp_path).digest()
    write_tensors(tmp_path, tensors(3).items())
    assert_same(TensorFiles.open(tmp_path), tensors(3))
    assert TensorFiles.open(tmp_path).digest() != digest
    assert [path.name for path in tmp_path.iterdir()] == [WEIGHTS]
    write_tensors(tmp_path, tensors(9).items(), max_shard_bytes=100)
    assert TensorFiles.open(tmp_path).digest() == digest


def test_weights_that_fail_half_way_leave_the_old_ones(tmp_path: Path) -> None:
    write_tensors(tmp_path, tensors(3).items())
    more = tensors(9)
    twice = [*more.items(), ("layer.0.weight", more["layer.0.weight"])]
    with pytest.raises(CheckpointError, match=r"layer\.0\.weight was given twice"):
        write_tensors(tmp_path, twice, max_shard_bytes=100)
    assert_same(TensorFiles.open(tmp_path), tensors(3))
    with pytest.raises(CheckpointError, match="complex64"):
        write_tensors(tmp_path, [("z", torch.zeros(2, dtype=torch.complex64))])
    with pytest.raises(CheckpointError, match="no tensors"):
        write_tensors(tmp_path, [])
    assert [path.name for path in tmp_path.iterdir()] == [WEIGHTS]


def sharded(directory: Path) -> list[Path]:
    write_tensors(directory, tensors(9).items(), max_shard_bytes=200)
    return TensorFiles.open(directory).files


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    shard = sharded(tmp_path)[1]
    shard.unlink()
    with pytest.raises(CheckpointError, match=f"shard {shard.name} is missing: download or copy"):
        TensorFiles.open(tmp_path)


def test_a_tensor_that_only_the_index_knows_is_named(tmp_path: Path) -> None:
    first = sharded(tmp_path)[0]
    index = json.loads((tmp_path / INDEX).read_text())
    index["weight_map"]["ghost"] = first.name
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=f"{first.name}: ghost is not in it"):
        TensorFiles.open(tmp_path)


@pytest.mark.parametrize("place", ["../model.safetensors", "/etc/passwd", 7])
def test_an_index_cannot_name_files_elsewhere(place: object, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": place}}))
    with pytest.raises(CheckpointError, match=INDEX):
        TensorFiles.open(tmp_path)


def test_a_name_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_tensors(tmp_path, tensors().items())
    with pytest.raises(CheckpointError, match=r"no tensor lm_head\.weight"):
        TensorFiles.open(tmp_path).tensor("lm_head.weight")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_value_that_is_not_finite_is_found_when_it_is_read(
    value: float, dtype: torch.dtype, tmp_path: Path
) -> None:
    bad = tensors(dtype=dtype)
    bad["layer.3.weight"][2, 1] = value
    write_tensors(tmp_path, bad.items())
    files = TensorFiles.open(tmp_path)
    assert torch.equal(files.tensor("layer.2.weight"), bad["layer.2.weight"])
    with pytest.raises(CheckpointError, match=r"layer\.3\.weight holds NaN"):
        files.tensor("layer.3.weight")


@given(data=st.data())
def test_a_cut_or_changed_file_is_refused_or_read_as_it_is(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A header is hostile: whatever stands in it, the answer is an error of ours or tensors."""
    directory = tmp_path_factory.mktemp("damaged")
    save_file(tensors(), directory / WEIGHTS)
    content = bytearray((directory / WEIGHTS).read_bytes())
    content = content[: data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(0, 3)) if content else 0):
        content[data.draw(st.integers(0, min(len(content) - 1, 600)))] = data.draw(st.integers(0, 255))
    (directory / WEIGHTS).write_bytes(bytes(content))
    try:
        for _, tensor in TensorFiles.open(directory):
            assert tensor.numel() >= 0
    except CheckpointError as error:
        assert WEIGHTS in str(error)  # noqa: PT017


def test_weights_in_another_form_are_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        TensorFiles.open(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(CheckpointError, match=r"convert its \.bin files"):
        TensorFiles.open(tmp_path)
    (tmp_path / "model.Q4_0.gguf").touch()
    with pytest.raises(CheckpointError, match="ostinato weights import"):
        TensorFiles.open(tmp_path)


def test_the_companions_of_weights_are_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    with pytest.raises(CheckpointError, match=CONFIG):
        copy_companions(source, target)
    (source / CONFIG).write_text("{}")
    with pytest.raises(CheckpointError, match="no tokenizer"):
        copy_companions(source, target)
    for name in ("tokenizer.json", "chat_template.jinja", "README.md"):
        (source / name).write_text(name)
    copy_companions(source, target)
    assert sorted(path.name for path in target.iterdir()) == ["chat_template.jinja", CONFIG, "tokenizer.json"]


PEAK = """
import sys
from pathlib import Path
import torch
from ostinato.model.checkpoint import load_decoder, CheckpointMeta
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tensor_files import TensorFiles, write_tensors
torch.set_num_threads(1)
def peak():
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index("VmHWM:") + 1]) * 1024
config = ModelConfig(vocab_size=60_000, hidden_size=256, layers=24, heads=4, kv_heads=4, head_dim=64,
                     intermediate_size=768, qk_norm=False)
write_tensors(Path(sys.argv[1]) / "warm", [("a", torch.ones(2_000_000, dtype=torch.bfloat16))])
start = peak()
decoder = Decoder(config, initialise=False)
for tensor in decoder.state_dict().values():
    tensor.fill_(0.5)
made = peak()
write_tensors(Path(sys.argv[1]), decoder.state_dict().items(), max_shard_bytes=40_000_000)
written = peak()
del decoder
files = TensorFiles.open(Path(sys.argv[1]))
load_decoder(Path(sys.argv[1]), config, CheckpointMeta(version=0, digest=files.digest()))
print(files.size, made - start, written - start, peak() - start)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_no_second_copy_of_a_model_is_held(tmp_path: Path) -> None:
    """Writing and reading need, beside the model, room for its largest tensor and much less than a model.

    Pages of mapped files count too, and how many are mapped in advance differs from machine to machine.
    """
    (tmp_path / "warm").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    size, made, written, loaded = map(int, done.stdout.split())
    largest = 60_000 * 256 * 4
    assert 0.9 * size < made < 1.1 * size
    assert written < made + 0.4 * size
    assert loaded < made + largest + 0.4 * size
