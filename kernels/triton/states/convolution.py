"""A short convolution over each row's tokens. A member with a single token replaces the row's kept inputs in place."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.paged import AttentionBatch
from thothy_ai.kernels.states import Convolution
from thothy_ai.kernels.triton.states.arithmetic import silu
from thothy_ai.kernels.triton.states.members import LongerMembers, continues, run_length

_CHANNELS = 128  # per program of one warp; with more, fewer programs run at once
_TOKENS = 8  # per program that convolves a longer member


def convolve(
    x: Tensor, convolution: Convolution, inputs: Tensor, batch: AttentionBatch, out: Tensor | None = None
) -> Tensor:
    """The convolution of x [T, channels] over each row's tokens -> [T, channels], in `out` if that is given. `inputs`
    [slots, kept, channels] has the kept inputs before the step, and is updated to those after it.
    """
    out = x.new_empty(x.shape) if out is None else out
    channels, width = convolution.weight.shape
    parts = triton.cdiv(channels, _CHANNELS)
    state = (inputs, x.stride(0), inputs.stride(0), channels, width, _CHANNELS)
    settings = (convolution.silu, *convolution.weight.stride())
    weights = (convolution.weight, convolution.bias)
    if batch.num_decode:
        _convolve_kernel[(batch.num_decode, parts)](
            out, x, *weights, batch.rows, batch.context_lens, batch.num_decode, *state, *settings, num_warps=1
        )
    if longer := batch.query_lens[batch.num_decode :]:
        members = LongerMembers.of(batch)
        grid = (len(longer), triton.cdiv(max(longer), _TOKENS), parts)
        _convolve_longer_kernel[grid](out, x, *weights, *members[:-1], *state, *settings, _TOKENS, num_warps=1)
        _keep_inputs_kernel[(len(longer), parts)](x, *members, *state, num_warps=1)
    return out


@triton.jit
def _input(x, x_token, kept, first, at, fresh, channel, inside, CHANNELS: tl.constexpr, KEPT: tl.constexpr):
    """Inputs at places `at` of a run of tokens that begins at `first`; earlier ones are the kept inputs, or zeros."""
    new = tl.load(x + (first + at) * x_token + channel, mask=inside & (at >= 0), other=0.0)
    old = tl.load(
        kept + (KEPT + at) * CHANNELS + channel, mask=inside & (at < 0) & (at >= -KEPT) & (fresh == 0), other=0.0
    )
    return (new + old).to(tl.float32)


@triton.jit
def _appended(items, item):
    return items + (item,)  # noqa: RUF005  Triton knows no starred tuples


@triton.jit(
    do_not_specialize=["members"],
    do_not_specialize_on_alignment=["rows", "ends"],
)
def _convolve_kernel(
    out, x, weight, bias, rows, ends, members, inputs, x_token, slot,
    CHANNELS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SILU: tl.constexpr,
    OF_CHANNEL: tl.constexpr, OF_TAP: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < CHANNELS
    row = tl.load(rows + member).to(tl.int64)
    fresh = tl.load(ends + member) == 1
    kept = inputs + row * slot
    first = member.to(tl.int64)
    run = run_length(rows, ends, None, member, members)
    for count in range(run):
        total = tl.zeros([BLOCK], tl.float32)
        if bias is not None:
            total += tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)
        for tap in tl.static_range(WIDTH):
            at = count + tap - (WIDTH - 1)
            value = _input(x, x_token, kept, first, at, fresh, channel, inside, CHANNELS, WIDTH - 1)
            factor = tl.load(weight + channel * OF_CHANNEL + tap * OF_TAP, mask=inside, other=0.0)
            total += value * factor.to(tl.float32)
        if SILU:
            total = silu(total)
        tl.store(out + (first + count) * CHANNELS + channel, total.to(out.dtype.element_ty), mask=inside)
    if run > 0:
        _keep(x, x_token, kept, kept, first, run, fresh, channel, inside, CHANNELS, WIDTH)


@triton.jit
def _keep(x, x_token, kept, into, first, count, fresh, channel, inside, CHANNELS: tl.constexpr, WIDTH: tl.constexpr):
    """Keep the last inputs of a run's first `count` tokens in `into`, which may be where earlier ones are kept."""
    for place in tl.static_range(WIDTH - 1):
        at = count - (WIDTH - 1) + place
        value = _input(x, x_token, kept, first, at, fresh, channel, inside, CHANNELS, WIDTH - 1)
        tl.store(into + place * CHANNELS + channel, value.to(into.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["members"], do_not_specialize_on_alignment=["rows", "ends", "starts"])
def _convolve_longer_kernel(
    out, x, weight, bias, members, rows, ends, starts, inputs, x_token, slot,
    CHANNELS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SILU: tl.constexpr,
    OF_CHANNEL: tl.constexpr, OF_TAP: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Each input is read once, and kept for the tokens that follow."""
    member, begin = tl.program_id(0), tl.program_id(1) * TOKENS
    channel = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < CHANNELS
    first = tl.load(starts + member).to(tl.int64)
    count = tl.load(starts + member + 1) - first
    if begin < count:
        row = tl.load(rows + member).to(tl.int64)
        run = first  # where the row's tokens begin in the step
        fresh = tl.load(ends + member) == count
        if begin == 0:
            going = continues(rows, ends, starts, member, members)
            while going:
                member -= 1
                going = continues(rows, ends, starts, member, members)
            run = tl.load(starts + member).to(tl.int64)
            fresh = tl.load(ends + member) == tl.load(starts + member + 1) - run
        least = tl.zeros([BLOCK], tl.float32)
        if bias is not None:
            least += tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)
        seen, factors = (), ()
        for tap in tl.static_range(WIDTH):
            factor = tl.load(weight + channel * OF_CHANNEL + tap * OF_TAP, mask=inside, other=0.0)
            factors = _appended(factors, factor.to(tl.float32))
            if tap > 0:
                at = first - run + begin + tap - WIDTH
                value = _input(x, x_token, inputs + row * slot, run, at, fresh, channel, inside, CHANNELS, WIDTH - 1)
                seen = _appended(seen, value)
        for each in tl.static_range(TOKENS):
            at = begin + each
            new = tl.load(x + (first + at) * x_token + channel, mask=inside & (at < count), other=0.0)
            seen, total = _appended(seen, new.to(tl.float32)), least
            for tap in tl.static_range(WIDTH):
                total += seen[each + tap] * factors[tap]
            if SILU:
                total = silu(total)
            place = out + (first + at) * CHANNELS + channel
            tl.store(place, total.to(out.dtype.element_ty), mask=inside & (at < count))


@triton.jit(
    do_not_specialize=["members"],
    do_not_specialize_on_alignment=["rows", "ends", "starts", "keeps"],
)
def _keep_inputs_kernel(
    x, members, rows, ends, starts, keeps, inputs, x_token, slot,
    CHANNELS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Runs after the convolution, which reads the inputs replaced here."""
    member = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + member).to(tl.int64)
    first = tl.load(starts + member).to(tl.int64)
    fresh = tl.load(ends + member) == tl.load(starts + member + 1) - first
    kept, inside = inputs + row * slot, channel < CHANNELS
    run = run_length(rows, ends, starts, member, members)
    if keeps is not None:
        for each in range(member, member + run):
            target, count = tl.load(keeps + each).to(tl.int64), tl.load(starts + each + 1) - first
            _keep(
                x, x_token, kept, inputs + target * slot, first, count, fresh, channel, inside & (target >= 0),
                CHANNELS, WIDTH,
            )  # fmt: skip
    count = tl.load(starts + member + run) - first
    _keep(x, x_token, kept, kept, first, count, fresh, channel, inside & (run > 0), CHANNELS, WIDTH)
