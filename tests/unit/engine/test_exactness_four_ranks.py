"""Four processes that share a model, of which some hold the same KV head, choose the tokens of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from tests.support.oracle import ROOMY, tiny_oracle
from tests.support.two_ranks import START, SharedModel, two_ranks


def test_pairs_of_four_ranks_hold_the_same_kv_head(tmp_path: Path) -> None:
    """And the last rank has fewer tokens of the vocabulary than the others."""
    start = replace(START, tensor_parallel=4)
    sizes = {"num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 129}
    oracle = tiny_oracle("llama", tmp_path, torch.device("cpu"), **sizes)
    with two_ranks(start) as four:
        oracle.check(ROOMY, build=SharedModel(four, tmp_path / "llama", start).build)
