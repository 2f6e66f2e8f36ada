"""GGML's block formats, one value at a time, as ggml-quants.c and ggml-common.h define them: an oracle, and slow."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from gguf import GGMLQuantizationType as Quant

Decode = Callable[[bytes], Iterator[float]]


def _half(block: bytes, offset: int) -> float:
    return float(struct.unpack_from("<e", block, offset)[0])


def _nibbles(data: bytes) -> list[int]:
    return [byte & 15 for byte in data] + [byte >> 4 for byte in data]


def _fifth_bits(data: bytes) -> list[int]:
    bits = int.from_bytes(data, "little")
    return [(bits >> i & 1) << 4 for i in range(32)]


def q8_0(block: bytes) -> Iterator[float]:
    d = _half(block, 0)
    yield from (d * q for q in struct.unpack_from("<32b", block, 2))


def q4_0(block: bytes) -> Iterator[float]:
    d = _half(block, 0)
    yield from (d * (q - 8) for q in _nibbles(block[2:]))


def q4_1(block: bytes) -> Iterator[float]:
    d, m = _half(block, 0), _half(block, 2)
    yield from (d * q + m for q in _nibbles(block[4:]))


def q5_0(block: bytes) -> Iterator[float]:
    d = _half(block, 0)
    yield from (d * ((q | h) - 16) for q, h in zip(_nibbles(block[6:]), _fifth_bits(block[2:6]), strict=True))


def q5_1(block: bytes) -> Iterator[float]:
    d, m = _half(block, 0), _half(block, 2)
    yield from (d * (q | h) + m for q, h in zip(_nibbles(block[8:]), _fifth_bits(block[4:8]), strict=True))


def _scale_min(scales: bytes, j: int) -> tuple[int, int]:
    """get_scale_min_k4: six bits each of scale and minimum, packed over twelve bytes."""
    if j < 4:
        return scales[j] & 63, scales[j + 4] & 63
    return scales[j + 4] & 15 | scales[j - 4] >> 6 << 4, scales[j + 4] >> 4 | scales[j] >> 6 << 4


def _k_block(block: bytes, high: Callable[[int, int], int], qs: bytes) -> Iterator[float]:
    d, dmin, scales = _half(block, 0), _half(block, 2), block[4:16]
    for j in range(8):
        scale, minimum = _scale_min(scales, j)
        for i in range(32):
            q = qs[j // 2 * 32 + i] >> (4 * (j % 2)) & 15
            yield d * scale * (q | high(j, i)) - dmin * minimum


def q4_k(block: bytes) -> Iterator[float]:
    yield from _k_block(block, lambda j, i: 0, block[16:])


def q5_k(block: bytes) -> Iterator[float]:
    yield from _k_block(block, lambda j, i: (block[16 + i] >> j & 1) << 4, block[48:])


def q6_k(block: bytes) -> Iterator[float]:
    ql, qh, scales, d = block[:128], block[128:192], struct.unpack_from("<16b", block, 192), _half(block, 208)
    for n in range(2):
        for quarter in range(4):
            for i in range(32):
                low = ql[n * 64 + quarter % 2 * 32 + i] >> (4 * (quarter // 2)) & 15
                q = (low | (qh[n * 32 + i] >> (2 * quarter) & 3) << 4) - 32
                yield d * scales[n * 8 + quarter * 2 + i // 16] * q


def mxfp4(block: bytes) -> Iterator[float]:
    magnitudes = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
    scale = 2.0 ** (block[0] - 127)
    yield from (scale * (-1) ** (q >> 3) * magnitudes[q & 7] for q in _nibbles(block[1:]))


# decoder, bytes of a block, byte offsets of its half-precision fields
BLOCKS: dict[Quant, tuple[Decode, int, tuple[int, ...]]] = {
    Quant.Q8_0: (q8_0, 34, (0,)),
    Quant.Q4_0: (q4_0, 18, (0,)),
    Quant.Q4_1: (q4_1, 20, (0, 2)),
    Quant.Q5_0: (q5_0, 22, (0,)),
    Quant.Q5_1: (q5_1, 24, (0, 2)),
    Quant.Q4_K: (q4_k, 144, (0, 2)),
    Quant.Q5_K: (q5_k, 176, (0, 2)),
    Quant.Q6_K: (q6_k, 210, (208,)),
}
