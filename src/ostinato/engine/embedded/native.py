"""The forward pass of `kernel.c` over the rows of a SlotTable.

To the bit, its results do not depend on the batch: a token has the same logits whether it is computed alone,
in a prefill, among others or on a reused prefix.
"""

import ctypes
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ostinato.engine.embedded.forward import Slots
from ostinato.engine.embedded.kernel import library
from ostinato.engine.embedded.slots import SlotTable
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder, Layer
from ostinato.model.experts import Dense, Experts


class Packed:
    """Weights in the layout of the kernel; `pointers` is its array of their addresses."""

    def __init__(self, decoder: Decoder) -> None:
        self._arrays = [array for part in _parts(decoder) for array in part]
        addresses = [array.ctypes.data for array in self._arrays]
        self.pointers = (ctypes.c_void_p * len(addresses))(*addresses)


class NativeForward:
    """Computes and samples in one call for all slots. Raises KernelError where there is no kernel."""

    def __init__(self, decoder: Decoder, table: SlotTable) -> None:
        config = decoder.config
        self._table, self._library = table, library()
        self._own = Decoder(config, initialise=False)
        self._weights = self.prepare(decoder.state_dict())
        self._cos, self._sin = (
            np.ascontiguousarray(part[: table.max_len, 0].numpy())
            for part in decoder.rotary.tables(table.max_len, torch.device("cpu"))
        )
        sizes = (ctypes.c_int64 * 16)(*_sizes(config, table))
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
        self._own.load_state_dict(tensors)
        return Packed(self._own)

    def use(self, weights: Packed) -> None:
        self._weights = weights

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        self._library.copy_prefix(self._engine, source, target, length)

    def advance(self, slots: Slots, version: int) -> Slots:
        finished, to = self._finished
        count = self._library.advance(
            self._engine, self._weights.pointers, self._places, len(slots), slots.ctypes.data, version, to
        )
        return finished[:count].copy()


Array = NDArray[np.float32]


def _places(table: SlotTable) -> ctypes.Array[ctypes.c_void_p]:
    """Return the addresses of a table's arrays, in the order of the kernel's `Table`."""
    arrays = table.tokens, table.versions, table.logprobs, table.uniform, table.routes, table.stops
    rest = table.length, table.limit, table.computed, table.temperature
    addresses = [array.ctypes.data for array in (*arrays, *rest)]
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _sizes(config: ModelConfig, table: SlotTable) -> list[int]:
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
        *(len(table.busy), table.max_len),
    ]


def _parts(decoder: Decoder) -> Iterator[list[Array]]:
    """Yield every array of the weights, in the order of the kernel's pointers."""
    for layer in decoder.layers:
        assert isinstance(layer, Layer)
        attention, mlp = layer.attention, layer.mlp
        gains = attention.gains()
        yield [_vector(layer.attention_norm.weight), _matrix(attention.qkv)]
        yield [_NONE if attention.bias is None else _vector(attention.bias)]
        yield [_NONE if gains is None else _array(gains)]
        yield [_matrix(attention.out), _vector(layer.mlp_norm.weight)]
        yield _experts(mlp) if isinstance(mlp, Experts) else _dense(mlp)
    table = _array(decoder.embedding)
    wide = np.zeros((len(table), library().padded_width(table.shape[1])), np.float32)
    wide[:, : table.shape[1]] = table
    yield [wide, _vector(decoder.norm.weight), _matrix(decoder.unembedding)]


_NONE = np.zeros(1, np.float32)
"""The placeholder for an array that a model does not have."""


def _experts(mlp: Experts) -> list[Array]:
    pairs = [(mlp.gate_up[e], mlp.down[e]) for e in range(mlp.config.experts)]
    shared = [_NONE, _NONE] if mlp.shared is None else _pairs([(mlp.shared.gate_up, mlp.shared.down)])
    return [_matrix(mlp.router), *_pairs(pairs), *shared]


def _dense(mlp: Dense) -> list[Array]:
    return [_NONE, *_pairs([(mlp.gate_up, mlp.down)]), _NONE, _NONE]


def _pairs(pairs: list[tuple[Tensor, Tensor]]) -> list[Array]:
    """Return all gate and up matrices, each padded to whole panels, as one array, and all down matrices."""
    ups = [_matrix(half) for gate_up, _ in pairs for half in gate_up.chunk(2)]
    return [np.concatenate(ups), np.concatenate([_matrix(down) for _, down in pairs])]


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
