"""The forward pass of `kernel.c` over the rows of a SlotTable.

To the bit, its results do not depend on the batch: a token has the same logits whether it is computed alone,
in a prefill, among others or on a reused prefix.
"""

import ctypes
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.engine.embedded.forward import Slots
from ostinato.engine.embedded.kernel import library
from ostinato.engine.embedded.slots import SlotTable
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder, check_weights, without_draft
from ostinato.model.mtp import Mtp, draft_shapes


class Packed:
    """Weights in the layout of the kernel: `pointers` is its array of addresses, `mtp` the draft's if any."""

    def __init__(
        self, config: ModelConfig, tensors: Mapping[str, Tensor], draft: Mapping[str, Tensor]
    ) -> None:
        self._arrays = [array for part in _parts(config, tensors) for array in part]
        self.pointers = _pointers(self._arrays)
        self._draft = [array for part in _mtp(config, draft) for array in part] if draft else []
        self.mtp = _pointers(self._draft) if draft else None


class NativeForward:
    """Computes and samples in one call for all slots. Raises KernelError where there is no kernel.

    What followed the same tokens before is drafted. With `draft` its layer drafts too, and that of each
    further version that comes with one.
    """

    def __init__(self, decoder: Decoder, table: SlotTable, draft: Mtp | None = None) -> None:
        config = decoder.config
        self._table, self._library = table, library()
        self._config = config
        with torch.device("meta"):
            self._shapes = Decoder(config, initialise=False).state_dict()
        self._draft_shapes = draft_shapes(config) if draft else {}
        self._weights = self.prepare(decoder.state_dict() | (draft.state_dict() if draft else {}))
        self._cos, self._sin = (
            np.ascontiguousarray(part[: table.max_len, 0].numpy())
            for part in decoder.rotary.tables(table.max_len, torch.device("cpu"))
        )
        values = _sizes(config, table, foresees=draft is not None and table.drafts > 0)
        sizes = (ctypes.c_int64 * len(values))(*values)
        place = ctypes.byref(sizes), config.rms_eps, self._cos.ctypes.data, self._sin.ctypes.data
        self._engine = self._library.create(*place)
        if not self._engine:
            raise MemoryError(f"no memory for {len(table.busy)} slots of {table.max_len} tokens")
        self._places = _places(table)
        finished = np.zeros(len(table.busy), np.int64)
        self._finished = finished, finished.ctypes.data

    def __del__(self) -> None:
        if engine := getattr(self, "_engine", None):
            self._library.discard(engine)

    def prepare(self, tensors: Mapping[str, Tensor]) -> Packed:
        """Return weights ready for `use`, without touching those in use. Raises WeightsError."""
        start = self._config.draft_prefix
        known = {name for name in tensors if name.startswith(start)} if self._draft_shapes else set()
        rest = {name: tensors[name] for name in tensors.keys() - known}
        check_weights(self._shapes, without_draft(self._config, rest))
        if draft := {name: tensors[name] for name in known}:
            check_weights(self._draft_shapes, draft)
        return Packed(self._config, tensors, draft)

    def use(self, weights: Packed) -> None:
        self._weights = weights

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        self._library.copy_prefix(self._engine, source, target, length)

    def fill(self, slot: int, end: int) -> None:
        self._library.fill(self._engine, self._weights.pointers, self._places, slot, end)

    def advance(self, slots: Slots, version: int) -> Slots:
        finished, to = self._finished
        weights, which = self._weights, (len(slots), slots.ctypes.data, version, self._table.drafts)
        count = self._library.advance(self._engine, weights.pointers, weights.mtp, self._places, *which, to)
        return finished[:count].copy()

    def drafted(self) -> tuple[int, int]:
        counts = (ctypes.c_int64 * 2)()
        self._library.drafted(self._engine, ctypes.byref(counts))
        return counts[0], counts[1]


Array = NDArray[np.float32]


def _places(table: SlotTable) -> ctypes.Array[ctypes.c_void_p]:
    """Return the addresses of a table's arrays, in the order of the kernel's `Table`."""
    arrays = table.tokens, table.versions, table.logprobs, table.uniform, table.routes, table.stops
    rest = table.prompt, table.length, table.limit, table.computed, table.settings
    addresses = [array.ctypes.data for array in (*arrays, *rest)]
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _pointers(arrays: Sequence[Array]) -> ctypes.Array[ctypes.c_void_p]:
    addresses = [array.ctypes.data for array in arrays]
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _sizes(config: ModelConfig, table: SlotTable, *, foresees: bool) -> list[int]:
    """Return the sizes of model and table, in the order of the kernel's `Sizes`."""
    moe = (config.experts, config.experts_per_token, config.expert_size, config.shared_expert_size)
    no_moe = (0, 0, 0, 0)
    return [
        *(
            config.vocab_size,
            config.hidden_size,
            config.layers,
            config.heads,
            config.kv_heads,
            config.head_dim,
        ),
        *(0 if config.experts else config.intermediate_size, *(moe if config.experts else no_moe)),
        *(int(config.norm_topk), int(config.qk_norm), int(config.attention_bias)),
        *(len(table.busy), table.max_len, table.drafts, int(foresees)),
    ]


def _parts(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Iterator[list[Array]]:
    """Yield every array of the weights, by Hugging Face name, in the order of the kernel's pointers."""
    for i in range(config.layers):
        yield from _layer(config, f"model.layers.{i}.", tensors)
    table = _array(tensors["model.embed_tokens.weight"])
    wide = np.zeros((len(table), library().padded_width(table.shape[1])), np.float32)
    wide[:, : table.shape[1]] = table
    head = tensors["model.embed_tokens.weight" if config.tied else "lm_head.weight"]
    yield [wide, _vector(tensors["model.norm.weight"]), _matrix(head)]


def _layer(config: ModelConfig, start: str, tensors: Mapping[str, Tensor]) -> Iterator[list[Array]]:
    """Yield the eleven arrays of the layer whose names begin with `start`."""
    layer = {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
    qkv = [f"self_attn.{part}_proj" for part in "qkv"]
    yield [_vector(layer["input_layernorm.weight"])]
    yield [_matrix(torch.cat([layer[f"{name}.weight"] for name in qkv]))]
    biases = [layer[f"{name}.bias"] for name in qkv] if config.attention_bias else []
    yield [_vector(torch.cat(biases)) if biases else _NONE]
    counts = {"self_attn.q_norm.weight": config.heads, "self_attn.k_norm.weight": config.kv_heads}
    gains = [layer[name].repeat(count) for name, count in counts.items()] if config.qk_norm else []
    yield [_array(torch.cat(gains)) if gains else _NONE]
    yield [_matrix(layer["self_attn.o_proj.weight"]), _vector(layer["post_attention_layernorm.weight"])]
    yield _experts(config, layer) if config.experts else [_NONE, *_pairs(layer, ["mlp"]), _NONE, _NONE]


def _mtp(config: ModelConfig, tensors: Mapping[str, Tensor]) -> Iterator[list[Array]]:
    """Yield every array of a draft, in the order of the kernel's pointers."""
    start = config.draft_prefix
    yield from _layer(config, start, tensors)
    yield [_vector(tensors[f"{start}{name}.weight"]) for name in ("enorm", "hnorm")]
    yield [_matrix(tensors[f"{start}eh_proj.weight"]), _vector(tensors[f"{start}shared_head.norm.weight"])]


_NONE = np.zeros(1, np.float32)
"""The placeholder for an array that a model does not have."""


def _experts(config: ModelConfig, layer: Mapping[str, Tensor]) -> list[Array]:
    routed = _pairs(layer, [f"mlp.experts.{e}" for e in range(config.experts)])
    shared = _pairs(layer, ["mlp.shared_expert"]) if config.shared_expert_size else [_NONE, _NONE]
    return [_matrix(layer["mlp.gate.weight"]), *routed, *shared]


def _pairs(layer: Mapping[str, Tensor], names: list[str]) -> list[Array]:
    """Return all gate and up matrices, each padded to whole panels, as one array, and all down matrices."""
    ups = [_matrix(layer[f"{name}.{part}_proj.weight"]) for name in names for part in ("gate", "up")]
    return [
        np.concatenate(ups),
        np.concatenate([_matrix(layer[f"{name}.down_proj.weight"]) for name in names]),
    ]


def _matrix(weight: Tensor) -> Array:
    """Return a matrix [outputs, inputs] in panels."""
    array = _array(weight)
    outputs, inputs = array.shape
    packed = np.empty(library().packed_size(outputs, inputs), np.float32)
    library().pack(array.ctypes.data, outputs, inputs, packed.ctypes.data)
    return packed


def _vector(weight: Tensor) -> Array:
    """Return a vector padded with zeros to whole panels."""
    array = _array(weight)
    return np.pad(array, (0, library().padded_width(len(array)) - len(array)))


def _array(weight: Tensor) -> Array:
    return np.ascontiguousarray(weight.detach().numpy(), dtype=np.float32)
