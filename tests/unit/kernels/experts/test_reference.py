"""The reference of mixtures of experts, against formulas in float64 and transformers' own routers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from transformers.models.glm4_moe.configuration_glm4_moe import Glm4MoeConfig
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeTopkRouter
from transformers.models.gpt_oss.configuration_gpt_oss import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssTopKRouter

from tests.support.expert_case import FORMATS, make_case
from tests.support.layer_checks import normal
from thothy_ai.kernels.experts import CLAMPED_SWIGLU, GELU_TANH, SILU, SQUARED_RELU, ExpertActivation, Mxfp4, Routing
from thothy_ai.kernels.reference.experts import Experts, activated, route
from thothy_ai.kernels.reference.mxfp4 import dequantize_mxfp4


@pytest.mark.parametrize(
    "activation", [SILU, CLAMPED_SWIGLU, GELU_TANH, SQUARED_RELU], ids=["silu", "clamped", "gelu", "relu2"]
)
@pytest.mark.parametrize("form", FORMATS)
def test_experts(form: str, activation: ExpertActivation) -> None:
    case = make_case(form, 9, biased=activation is CLAMPED_SWIGLU, gated=activation is not SQUARED_RELU)
    got = Experts(case.weights, activation)(case.x * 3, case.ids, case.shares)
    wanted = make_case(form, 9, biased=activation is CLAMPED_SWIGLU, gated=activation is not SQUARED_RELU)
    exact = type(wanted)(case.x * 3, case.ids, case.shares, case.weights).wanted(activation)
    apart = (got - exact).norm() / exact.norm()
    assert apart < (0.05 if form == "fp8" else 1e-6)


def test_gelu_is_torch_s() -> None:
    gate_up = 3 * normal(5, 64)
    gate, up = gate_up.chunk(2, dim=-1)
    wanted = functional.gelu(gate, approximate="tanh") * up
    torch.testing.assert_close(activated(gate_up, GELU_TANH), wanted)


def test_no_tokens() -> None:
    case = make_case("plain", 1)
    assert Experts(case.weights, SILU)(case.x[:0], case.ids[:0], case.shares[:0]).shape == (0, 64)


def test_routing_is_that_of_glm() -> None:
    config = Glm4MoeConfig(
        hidden_size=24, n_routed_experts=12, num_experts_per_tok=3, n_group=4, topk_group=2, routed_scaling_factor=2.5
    )
    theirs = Glm4MoeTopkRouter(config)
    theirs.weight.data, theirs.e_score_correction_bias = normal(12, 24), normal(12, seed=1)
    x = normal(50, 24, seed=2)
    _, weights, experts = theirs(x)
    routing = Routing(3, "sigmoid", scale=2.5, groups=4, kept_groups=2)
    got = route(x, theirs.weight.data, None, theirs.e_score_correction_bias, routing)
    assert got.experts.dtype == torch.int32
    by_expert = torch.zeros(2, 50, 12)
    by_expert[0].scatter_(1, experts, weights.detach())
    by_expert[1].scatter_(1, got.experts.long(), got.weights)
    torch.testing.assert_close(by_expert[0], by_expert[1])


def test_routing_is_that_of_gpt_oss() -> None:
    theirs = GptOssTopKRouter(GptOssConfig(hidden_size=24, num_local_experts=12, num_experts_per_tok=4))
    theirs.weight.data, theirs.bias.data = normal(12, 24), normal(12, seed=1)
    x = normal(50, 24, seed=2)
    _, weights, experts = theirs(x)
    got = route(x, theirs.weight.data, theirs.bias.data, None, Routing(4))
    assert torch.equal(got.experts.long(), experts)
    torch.testing.assert_close(got.weights, weights.detach())


def test_of_equal_scores_the_first_win() -> None:
    got = route(torch.zeros(3, 4), normal(8, 4), None, None, Routing(3, renormalized=False))
    assert got.experts.tolist() == [[0, 1, 2]] * 3
    torch.testing.assert_close(got.weights, torch.full((3, 3), 1 / 8))


def test_every_number_of_mxfp4() -> None:
    """Against the format's own table: a sign, two bits of exponent with a bias of one, a bit of mantissa."""
    blocks = torch.tensor(
        [sum(pair) for pair in zip(range(0, 16, 2), range(16, 256, 32), strict=True)], dtype=torch.uint8
    )
    blocks = torch.cat((blocks, blocks)).view(1, 1, 16)
    positive = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    for exponent in (0, 1, 120, 127, 200, 252):
        got = dequantize_mxfp4(Mxfp4(blocks, torch.tensor([[[exponent]]], dtype=torch.uint8)))
        wanted = torch.tensor([*positive, *(-each for each in positive)] * 2, dtype=torch.float64) * 2.0 ** (
            exponent - 127
        )
        assert torch.equal(got.flatten().double(), wanted)


def test_a_scale_of_mxfp4_may_say_that_there_is_no_number() -> None:
    scales = torch.tensor([[[255]]], dtype=torch.uint8)
    assert bool(dequantize_mxfp4(Mxfp4(torch.zeros(1, 1, 16, dtype=torch.uint8), scales)).isnan().all())
