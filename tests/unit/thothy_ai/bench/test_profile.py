"""A drain's time on the device, divided by the names of kernels."""

from __future__ import annotations

import pytest

from thothy_ai.bench.profile import Activity, covered, kind_of, require_gpu, split
from thothy_ai.engine.api.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT", "GEMM"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64", "GEMM"),
        ("void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm>>", "GEMM"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16>", "GEMM"),
        ("_gate_up_kernel", "GEMM"),
        ("_down_kernel", "GEMM"),
        ("_decode_kernel", "attention"),
        ("_merge_kernel", "attention"),
        ("_plan_kernel", "attention"),
        ("prefill_kernel", "attention"),
        ("_unpack_kernel", "attention"),
        ("decode_attention_kernel", "attention"),
        ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>", "attention"),
        ("_add_rms_norm_kernel", "rest"),
        ("_gated_kernel", "rest"),
        ("void at::native::vectorized_elementwise_kernel<4>", "rest"),
        ("Memcpy HtoD (Pinned -> Device)", "rest"),
    ],
)
def test_kernels_are_known_by_their_names(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_what_runs_side_by_side_counts_once() -> None:
    activities = [Activity("a", 10, 20), Activity("b", 15, 25), Activity("c", 30, 31), Activity("d", 12, 13)]
    assert covered(activities) == 16
    assert covered([]) == 0


def test_the_parts_add_up_to_the_whole() -> None:
    second = 10**9
    device = [
        Activity("nvjet_a", 10 * second, 14 * second),
        Activity("_decode_kernel", 13 * second, 16 * second),  # one second beside a GEMM
        Activity("_gated_kernel", 15 * second, 17 * second),  # one beside attention
        Activity("Memset", 19 * second, 20 * second),
        Activity("_gated_kernel", 18 * second, 19 * second),
    ]
    host = [
        Activity("cudaEventSynchronize", 8 * second, 11 * second),  # two of them before the first kernel
        Activity("cudaLaunchKernel", 11 * second, 12 * second),
        Activity("cudaStreamSynchronize", 17 * second, 18 * second),
    ]
    profile = split(device, host)
    assert (profile.gemm, profile.attention, profile.rest, profile.idle) == pytest.approx((4, 2, 3, 1))
    assert profile.seconds == pytest.approx(10)
    assert profile.waited == pytest.approx(2)
    costliest = {kernel.name: (kernel.kind, kernel.launches, kernel.seconds) for kernel in profile.kernels}
    assert costliest["_gated_kernel"] == ("rest", 2, pytest.approx(3))
    assert profile.kernels[0].name == "nvjet_a"


def test_without_kernels_there_is_nothing_to_divide(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="no kernels"):
        split([], [])
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InvalidRequestError, match="GPU"):
        require_gpu()
