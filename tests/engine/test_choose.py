"""The engine that serves a model follows from its shape and the machine, with the reason in words."""

import pytest

from ostinato.engine.choose import SMALL, TINY, choose_engine
from ostinato.model.config import ModelConfig

DEMO = ModelConfig(vocab_size=512, experts=4, expert_size=128)
SMOLLM2 = ModelConfig(
    vocab_size=49_152,
    hidden_size=576,
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim=64,
    intermediate_size=1536,
    qk_norm=False,
)
LARGE = ModelConfig(
    vocab_size=151_936,
    hidden_size=4096,
    layers=36,
    heads=32,
    kv_heads=8,
    head_dim=128,
    intermediate_size=12_288,
)
PLENTY = 10**12


def test_the_sizes_are_what_they_are_called() -> None:
    assert DEMO.parameters <= TINY < SMOLLM2.parameters == 134_515_008 <= SMALL < LARGE.parameters


@pytest.mark.parametrize(
    ("config", "gpu", "free", "vllm", "expected"),
    [
        (DEMO, False, PLENTY, True, ("embedded", "mostly overhead")),
        (DEMO, True, PLENTY, True, ("embedded", "mostly overhead")),
        (SMOLLM2, False, PLENTY, True, ("embedded", "134.5 million weights on a CPU: vLLM is no faster")),
        (SMOLLM2, True, PLENTY, True, ("vllm", "there is a GPU")),
        (SMOLLM2, True, PLENTY, False, ("embedded", "vLLM is not installed")),
        (SMOLLM2, False, 10**9, True, ("vllm", "are 1.1 GB and 1.0 GB are free")),
        (LARGE, False, PLENTY, True, ("vllm", "on a CPU: more than the embedded engine was measured at")),
        (None, False, PLENTY, True, ("vllm", "does not know this model: sliding_window")),
        (None, False, PLENTY, False, ("vllm", "does not know this model: sliding_window")),
    ],
)
def test_the_choice_and_its_reason(
    config: ModelConfig | None, gpu: bool, free: int, vllm: bool, expected: tuple[str, str]
) -> None:
    choice = choose_engine(config, gpu=gpu, free_bytes=free, vllm=vllm, unknown="sliding_window")
    assert choice.backend == expected[0] and expected[1] in choice.reason
