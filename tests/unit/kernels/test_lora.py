"""Adapters of linear layers in Triton, against plain sums in float64 and against the reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.lora import AdapterWeights, output_blocks
from thothy_ai.kernels.reference import activation as reference_activation
from thothy_ai.kernels.reference import lora as reference
from thothy_ai.kernels.reference.quantize import dequantize, quantize_fp8
from thothy_ai.kernels.triton import activation, lora

SLOTS = 3
NONE = SLOTS
CASES = {  # (parts, rank, inputs, ranks by slot, tokens)
    "one part": ([48], 16, 80, [3, 16, 0], [0, 0, 1, NONE, 2, 0]),
    "merged, odd sizes": ([96, 40, 40], 32, 200, [32, 5, 17], [2, 1, NONE, 0, 1, 1, 2] * 5),
    "two programs share the inputs": ([130], 16, 2100, [16, 1, 9], [1] * 17 + [0]),
    "four programs share the inputs": ([32], 16, 4200, [16, 1, 9], [1, 0, NONE, 2]),
    "a rank that is no power of two": ([40], 48, 64, [48, 0, 33], [0, 2, 1]),
    "a large rank": ([24], 256, 64, [256, 0, 200], [0, 2, 1]),
    "an odd number of outputs": ([33, 16], 16, 64, [16, 2, 0], [1, 0, 2, 0, NONE]),
    "a prompt": ([80, 32], 16, 40, [16, 9, 0], [1] * 700 + [NONE, 0, 2] * 200),
    "gate and up": ([48, 48], 16, 80, [3, 16, 0], [0, 0, 1, NONE, 2, 0]),
    "gate and up of a large rank": ([24, 24], 256, 64, [256, 0, 200], [0, 2, 1, NONE]),
    "gate and up of a prompt": ([144, 144], 16, 40, [16, 9, 0], [1] * 700 + [NONE, 0, 2] * 200),
    "outputs of several blocks": ([1100, 560], 16, 40, [16, 0, 9], [0, 2, 1, NONE] * 6),
    "gate and up of several programs": ([1100, 1100], 16, 40, [16, 0, 9], [0, 2, 1, NONE] * 6),
    "nobody": ([24], 16, 64, [16, 16, 16], [NONE, NONE]),
}


def made(case: str, dtype: torch.dtype, device: torch.device) -> tuple[AdapterWeights, Tensor, Tensor]:
    parts, rank, inputs, ranks, slots = CASES[case]
    generator = torch.Generator().manual_seed(7)
    a = torch.randn(SLOTS, len(parts), rank, inputs, generator=generator) * inputs**-0.5
    b = torch.randn(SLOTS, sum(parts), rank, generator=generator)
    for slot, own in enumerate(ranks):
        a[slot, :, own:] = b[slot, :, own:] = 0.0
    weights = AdapterWeights(
        a.flatten(1, 2).to(device, dtype),
        b.to(device, dtype),
        torch.tensor([*ranks, 0], dtype=torch.int32, device=device),
        output_blocks(parts, device),
    )
    x = torch.randn(len(slots), inputs, generator=generator).to(device, dtype)
    return weights, x, torch.tensor(slots, dtype=torch.int32, device=device)


def expected(x: Tensor, weights: AdapterWeights, slots: Tensor, out: Tensor, parts: list[int]) -> Tensor:
    result, rank = out.double(), weights.rank
    for token, slot in enumerate(slots.tolist()):
        if slot == NONE:
            continue
        low = weights.a[slot].double() @ x[token].double()
        begin = 0
        for part, rows in enumerate(parts):
            own = weights.b[slot, begin : begin + rows].double() @ low[part * rank : (part + 1) * rank]
            result[token, begin : begin + rows] += own
            begin += rows
    return result


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("module", [reference, lora], ids=["reference", "triton"])
def test_products(case: str, dtype: torch.dtype, module, device: torch.device) -> None:
    weights, x, slots = made(case, dtype, device)
    parts = CASES[case][0]
    out = torch.randn(len(x), sum(parts), generator=torch.Generator().manual_seed(8)).to(device, dtype)
    wanted = expected(x, weights, slots, out, parts)
    untouched = out[slots == NONE].clone()
    tokens = module.sort_by_adapter(slots, SLOTS)
    module.expand_add(module.shrink(x, weights, tokens), out)
    close = {"atol": 1e-4, "rtol": 1e-4} if dtype == torch.float32 else {"atol": 5e-2, "rtol": 2e-2}
    torch.testing.assert_close(out.double(), wanted, **close)
    assert torch.equal(out[slots == NONE], untouched)


@pytest.mark.parametrize("module", [reference, lora], ids=["reference", "triton"])
def test_quantized_inputs(module, device: torch.device) -> None:
    weights, x, slots = made("merged, odd sizes", torch.bfloat16, device)
    quantized = quantize_fp8(x)
    tokens = module.sort_by_adapter(slots, SLOTS)
    plain = Quantized(quantized.values, quantized.scales)
    got = module.shrink(plain, weights, tokens).low.sum(0)
    exact = module.shrink(dequantize(quantized).to(torch.bfloat16), weights, tokens).low.sum(0)
    for slot, own in enumerate(CASES["merged, odd sizes"][3]):
        token = slots == slot
        columns = (torch.arange(got.shape[1], device=device) % weights.rank) < own
        torch.testing.assert_close(got[token][:, columns], exact[token][:, columns], atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", ["merged, odd sizes", "a prompt"])
def test_a_token_does_not_depend_on_the_others(case: str, dtype: torch.dtype, device: torch.device) -> None:
    """Nor on the size of its tile, which is another one in the whole prompt."""
    weights, x, slots = made(case, dtype, device)
    parts = sum(CASES[case][0])

    def run(some: Tensor) -> Tensor:
        out = torch.zeros(len(some), parts, dtype=dtype, device=device)
        tokens = lora.sort_by_adapter(slots[some].contiguous(), SLOTS)
        lora.expand_add(lora.shrink(x[some].contiguous(), weights, tokens), out)
        return out

    everything = torch.arange(len(x), device=device)
    whole = run(everything)
    for some in (everything[:1], everything[3:9], everything.flip(0)):
        assert torch.equal(run(some), whole[some])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", ["outputs of several blocks", "gate and up of several programs", "a prompt"])
def test_programs_of_several_steps(
    case: str, dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there are enough programs, each takes several steps, of which a GPU prepares the next ones meanwhile."""
    weights, x, slots = made(case, dtype, device)
    parts = CASES[case][0]
    outputs = torch.randn(len(x), sum(parts), generator=torch.Generator().manual_seed(8)).to(device, dtype)
    shrunk = lora.shrink(x, weights, lora.sort_by_adapter(slots, SLOTS))

    def run(programs: int) -> list[Tensor]:
        monkeypatch.setattr(lora, "_PROGRAMS", programs)
        out = outputs.clone()
        lora.expand_add(shrunk, out)
        return [out, activation.silu_mul(outputs.clone(), shrunk)] if parts[0] == parts[-1] else [out]

    for few, many in zip(run(1 << 30), run(0), strict=True):
        assert torch.equal(few, many)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", [case for case, (parts, *_) in CASES.items() if len({*parts}) == 1])
@pytest.mark.parametrize("name", ["silu_mul", "gelu_tanh_mul"])
def test_activations_that_add_b(name: str, case: str, dtype: torch.dtype, device: torch.device) -> None:
    """The same as B and then the activation, also for tokens without an adapter."""
    weights, x, slots = made(case, dtype, device)
    outputs = torch.randn(len(x), sum(CASES[case][0]), generator=torch.Generator().manual_seed(8)).to(device, dtype)
    for kernels, gated in ((reference, reference_activation), (lora, activation)):
        shrunk = kernels.shrink(x, weights, kernels.sort_by_adapter(slots, SLOTS))
        got = getattr(gated, name)(outputs.clone(), shrunk)
        first = outputs.clone()
        kernels.expand_add(shrunk, first)
        close = {"atol": 1e-4, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 1e-3, "rtol": 1e-2}
        torch.testing.assert_close(got, getattr(gated, name)(first), **close)
