"""The router in Triton against its reference."""

from __future__ import annotations

import pytest
import torch

from tests.support.layer_checks import TYPES, normal
from tests.support.margins import Margins
from thothy_ai.kernels.experts import GATE_ROWS, Routing
from thothy_ai.kernels.reference import experts as reference
from thothy_ai.kernels.triton.experts.router import route

ROUTINGS = {
    "softmax": (8, Routing(2)),
    "all experts": (4, Routing(4)),
    "many experts": (128, Routing(8)),
    "not renormalized": (5, Routing(3, renormalized=False)),
    "sigmoid": (60, Routing(6, "sigmoid", scale=2.5)),
    "groups": (16, Routing(4, "sigmoid", groups=4, kept_groups=2)),
    "three groups": (24, Routing(8, groups=3, kept_groups=1)),
    "a shared expert": (256, Routing(8, shared=True)),
    "a shared expert and groups": (16, Routing(3, "sigmoid", scale=2.5, groups=4, kept_groups=2, shared=True)),
}


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("name", ROUTINGS)
def test_route(name: str, biased: bool, corrected: bool, device: torch.device, margins: Margins) -> None:
    experts, routing = ROUTINGS[name]
    rows = experts + GATE_ROWS * routing.shared
    x, weight = normal(13, 24).to(device), (normal(rows, 24, seed=1) / 5).to(device)
    bias = margins.around(normal(experts, seed=2).to(device)) if biased else None
    correction = margins.around(normal(experts, seed=3).to(device)) if corrected else None
    got, wanted = route(x, weight, bias, correction, routing), reference.route(x, weight, bias, correction, routing)
    assert torch.equal(got.experts, wanted.experts)
    torch.testing.assert_close(got.weights, wanted.weights)


def test_a_shared_expert_s_weight_is_the_sigmoid_of_its_gate(device: torch.device) -> None:
    x, weight = normal(7, 24).to(device), normal(12 + GATE_ROWS, 24, seed=1).to(device)
    got, routed = (
        route(x, weight[:rows], None, None, Routing(3, scale=2.5, shared=shared))
        for rows, shared in ((None, True), (12, False))
    )
    assert torch.equal(got.experts, torch.nn.functional.pad(routed.experts, (0, 1), value=12))
    torch.testing.assert_close(got.weights[:, :3], routed.weights)
    torch.testing.assert_close(got.weights[:, 3], (x @ weight[12]).sigmoid())


@pytest.mark.parametrize("dtype", TYPES)
def test_logits_are_not_rounded(dtype: torch.dtype, device: torch.device) -> None:
    x, weight = normal(7, 64).to(device, dtype), normal(32, 64, seed=1).to(device, dtype)
    got = route(x, weight, None, None, Routing(4))
    scores = (x.double() @ weight.double().T).softmax(-1).gather(1, got.experts.long())
    torch.testing.assert_close(got.weights.double(), scores / scores.sum(-1, keepdim=True), atol=1e-5, rtol=1e-4)


def test_of_equal_scores_the_first_win(device: torch.device) -> None:
    weight = normal(32, 24).to(device)
    assert route(torch.zeros(3, 24, device=device), weight, None, None, Routing(3)).experts.tolist() == [[0, 1, 2]] * 3


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
def test_a_token_that_is_not_finite_goes_to_real_experts_and_spoils_itself_only(scores, device: torch.device) -> None:
    x, weight = normal(3, 24).to(device), normal(12, 24, seed=1).to(device)
    routing = Routing(3, scores, groups=4, kept_groups=2)
    clean = route(x, weight, None, None, routing)
    x[1, 5] = float("nan")
    got = route(x, weight, None, None, routing)
    assert all(len(set(row)) == 3 and min(row) >= 0 and max(row) < 12 for row in got.experts.tolist())
    assert bool(got.weights[1].isnan().all())
    assert torch.equal(got.experts[::2], clean.experts[::2])
    assert torch.equal(got.weights[::2], clean.weights[::2])


def test_no_tokens(device: torch.device) -> None:
    got = route(torch.zeros(0, 24, device=device), normal(12, 24).to(device), None, None, Routing(3))
    assert got.experts.shape == got.weights.shape == (0, 3)
