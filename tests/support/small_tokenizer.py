"""A small vocabulary in tekken's format, and its tokenizer's folder: quick to sample from on a CPU."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from benchmarks.tekken import convert

WORDS = (" the", " of", " and", " in", " people", " years", "ing", "tion", " swim", " night", "日本", " ö", '":"', '"}')
PATTERN = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"
SPECIAL = 24


def small_tekken() -> dict[str, Any]:
    """Every byte, then every beginning of some words, in the order of their ranks."""
    tokens = [bytes([byte]) for byte in range(256)]
    for word in WORDS:
        whole = word.encode()
        tokens += [whole[:end] for end in range(2, len(whole) + 1) if whole[:end] not in tokens]
    return {
        "config": {
            "pattern": PATTERN,
            "default_vocab_size": SPECIAL + len(tokens),
            "default_num_special_tokens": SPECIAL,
        },
        "vocab": [{"rank": rank, "token_bytes": base64.b64encode(token).decode()} for rank, token in enumerate(tokens)],
    }


def write_tokenizer(folder: Path) -> Path:
    """Save the tokenizer to `folder`, and return that."""
    folder.mkdir(exist_ok=True)
    convert(small_tekken()).save_pretrained(folder)
    return folder
