"""Covers model/decoder.py, model/experts.py and model/norm.py."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ostinato.model.config import ModelConfig, ModelConfigError
from ostinato.model.decoder import Decoder, WeightsError
from ostinato.model.norm import rms_norm

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 16,
    "layers": 2,
    "heads": 2,
    "kv_heads": 1,
    "head_dim": 8,
}


def make(**sizes: Any) -> Decoder:
    torch.manual_seed(0)
    return Decoder(ModelConfig(**(SIZES | {"expert_size": 8} | sizes)))


def test_padding_on_the_right_changes_nothing() -> None:
    decoder = make(experts=4)
    ids = torch.randint(0, 50, (2, 12))
    with torch.no_grad():
        long, routes = decoder(ids)
        short, short_routes = decoder(ids[:, :7])
    assert torch.allclose(long[:, :7], short, atol=1e-5)
    assert routes is not None and torch.equal(routes[:, :7], short_routes)
    assert routes.shape == (2, 12, 2, 2) and routes.dtype == torch.uint16


def test_a_fresh_decoder_is_nearly_uniform() -> None:
    decoder = make()
    ids = torch.randint(0, 50, (4, 20))
    with torch.no_grad():
        loss = F.cross_entropy(decoder(ids)[0][:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert abs(float(loss) - float(torch.log(torch.tensor(50.0)))) < 0.4


def test_gradients_equal_the_plain_formula() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: rms_norm(a, b, 1e-6), (x, weight))


def test_training_and_inference_agree() -> None:
    decoder = make(experts=4)
    ids = torch.randint(0, 50, (2, 9))
    with torch.no_grad():
        plain = decoder(ids)[0]
    assert torch.allclose(decoder(ids)[0], plain, atol=1e-5)


@pytest.mark.parametrize("experts", [0, 4])
def test_every_parameter_learns(experts: int) -> None:
    decoder = make(experts=experts, shared_expert_size=8 if experts else 0)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    decoder(torch.randint(0, 50, (4, 16)))[0].square().sum().backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_experts_equal_the_plain_formula() -> None:
    decoder = make(experts=4, experts_per_token=3)
    mlp: Any = decoder.layers[0].mlp
    torch.nn.init.normal_(mlp.down)
    x = torch.randn(2, 5, 16)
    got, chosen = mlp(x)
    weights, order = torch.softmax(x @ mlp.router.T, -1).topk(3, -1)
    assert torch.equal(order, chosen.long())
    for b in range(2):
        for t in range(5):
            expected = torch.zeros(16)
            for p, e in enumerate(order[b, t].tolist()):
                gate, up = (mlp.gate_up[e] @ x[b, t]).chunk(2)
                expected += weights[b, t, p] / weights[b, t].sum() * (mlp.down[e] @ (F.silu(gate) * up))
            assert torch.allclose(got[b, t], expected, atol=1e-4)


def test_weights_are_copied_by_name() -> None:
    one, other = make(experts=4), make(experts=4, rope_theta=1000.0)
    with torch.no_grad():
        for tensor in one.state_dict().values():
            tensor.normal_()
    other.load_state_dict(one.state_dict())
    for name, tensor in other.state_dict().items():
        assert torch.equal(tensor, one.state_dict()[name])
    assert "model.layers.1.mlp.experts.3.down_proj.weight" in one.state_dict()


def test_refused_weights_change_nothing() -> None:
    decoder = make()
    before = {name: tensor.clone() for name, tensor in decoder.state_dict().items()}
    tensors = {name: tensor + 1 for name, tensor in before.items()}
    tensors["model.norm.weight"] = torch.full((16,), torch.inf)
    with pytest.raises(WeightsError, match="not finite"):
        decoder.load_state_dict(tensors)
    for name, tensor in decoder.state_dict().items():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"heads": 3, "kv_heads": 2}, "divisor"),
        ({"head_dim": 7}, "odd"),
        ({"experts": 2, "experts_per_token": 3}, "3 of 2 experts"),
    ],
)
def test_impossible_shapes_are_refused(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        make(**sizes)


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"tied": False, "qk_norm": False},
        {"qk_norm": False, "attention_bias": True},
        {"experts": 4},
        {"experts": 3, "shared_expert_size": 5, "tied": False},
    ],
)
def test_weights_are_counted_without_a_decoder(sizes: dict[str, Any]) -> None:
    decoder = make(**sizes)
    assert decoder.config.parameters == sum(tensor.numel() for tensor in decoder.state_dict().values())
