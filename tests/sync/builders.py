"""Weights for the tests: any version can be built again, anywhere, from its number."""

from pathlib import Path
from typing import Any

import torch

from ostinato.store import Objects
from ostinato.sync import Manifest, Publisher

ROOT = Path(__file__).parents[2]
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool)


def weights(version: int, *, width: int = 8) -> dict[str, torch.Tensor]:
    """One tensor of every kind, one that never changes, one without values and one without a shape."""
    random = torch.Generator().manual_seed(version)
    changing = {
        f"layer.{str(dtype).removeprefix('torch.')}": torch.randn(3, width, generator=random).to(dtype)
        for dtype in DTYPES
    }
    odd = torch.tensor([float("nan"), -0.0, float("inf"), float(version)])
    return {
        **changing,
        "odd": odd,
        "fixed": torch.ones(5),
        "empty": torch.zeros(0, 4),
        "scalar": odd[3].clone(),
    }


def steps(version: int, *, width: int = 400, odd: bool = False) -> dict[str, torch.Tensor]:
    """Weights as training leaves them: most stay, a few values change from one version to the next."""
    random = torch.Generator().manual_seed(7)
    values = torch.randn(4, width, generator=random)
    for step in range(version + 1):
        places = torch.randint(0, 4 * width, (5,), generator=random.manual_seed(step))
        values.view(-1)[places] += 0.01 * (step + 1)
    other = {"odd": torch.tensor([float("nan"), -0.0, float(version)])} if odd else {}
    return {"w": values.to(torch.bfloat16), "v": values[0].clone(), "fixed": torch.ones(3), **other}


def published(objects: Objects, versions: int, **named: Any) -> Publisher:
    """A publisher that has published versions 0 to `versions`, as `steps` makes them."""
    publisher = Publisher(objects, **named)
    publisher.anchor(0, steps(0))
    for version in range(1, versions + 1):
        publisher.delta(version, steps(version))
    return publisher


def same_bits(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return {name: bits(tensor) for name, tensor in left.items()} == {n: bits(t) for n, t in right.items()}


def bits(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return tensor.dtype, tensor.shape, data


def part_path(folder: Path, manifest: Manifest) -> Path:
    return folder / manifest.parts[0].key


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    path.write_bytes(data)
