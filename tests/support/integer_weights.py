"""Random integer weights with groups, and what they stand for."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.reference.grouped import packed


class Form(NamedTuple):
    """`group` of K or more is a whole row; scales that are `wide` do not fit 16 bits."""

    outputs: int
    inputs: int
    group: int
    bits: int = 4
    zeros: bool = False
    offsets: bool = False
    wide: bool = False


FORMS = {
    "groups of 128": Form(64, 512, 128),
    "groups of 32 with zeros": Form(96, 320, 32, zeros=True),
    "groups of 64, inputs and outputs that fill no tile": Form(72, 200, 64),
    "a whole row with zeros": Form(80, 600, 600, zeros=True),
    "groups of 32, outputs that fill no tile": Form(70, 512, 32),
    "groups of 32, odd outputs": Form(71, 512, 32),
    "groups of 512": Form(64, 1024, 512),
    "a group that the inputs do not fill": Form(64, 576, 128, zeros=True),
    "8 bits, groups of 128": Form(64, 384, 128, 8),
    "8 bits, groups of 32 with zeros": Form(40, 224, 32, 8, zeros=True),
    "groups of 32 with offsets": Form(72, 288, 32, offsets=True),
    "8 bits, groups of 32 with offsets": Form(40, 224, 32, 8, offsets=True),
    "groups of 32 with zeros and wide scales": Form(96, 320, 32, zeros=True, wide=True),
    "8 bits, a whole row with zeros and wide scales": Form(40, 224, 224, 8, zeros=True, wide=True),
    "8 bits, groups of 16": Form(72, 208, 16, 8),
}


def random_weight(
    form: Form, device: torch.device, scale_type: torch.dtype = torch.float16, seed: int = 0
) -> tuple[GroupedInts, Tensor]:
    """The weight, and what it stands for [N, K] float64."""
    generator = torch.Generator().manual_seed(seed)
    groups, most = -(-form.inputs // min(form.group, form.inputs)), 1 << form.bits
    numbers = torch.randint(0, most, (form.outputs, form.inputs), generator=generator)
    scales = (
        (0.1 + torch.rand(groups, form.outputs, generator=generator))
        .div(most)
        .to(torch.float32 if form.wide else scale_type)
    )
    zeros = torch.randint(0, most, (groups, form.outputs), generator=generator) if form.zeros else None
    of_input = torch.arange(form.inputs) // form.group
    by_input: int | Tensor = 0 if form.offsets else most // 2 if zeros is None else zeros.t()[:, of_input]
    wanted = (numbers - by_input).double() * scales.t().double()[:, of_input]
    offsets = None
    if form.offsets:
        offsets = torch.rand(groups, form.outputs, generator=generator).sub(0.8).to(scale_type)
        wanted += offsets.t().double()[:, of_input]
        offsets = offsets.to(device)
    moved = (numbers.to(device), scales.to(device), None if zeros is None else zeros.to(device))
    return packed(*moved, form.bits, form.group, offsets=offsets), wanted.to(device)
