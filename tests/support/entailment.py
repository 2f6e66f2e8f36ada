"""A small entailment model with random weights, as a folder of `transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

TOKENS = (
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "tower", "has", "stairs", "a", "mayor", "opened", "it", "in",
    "june", "rain", "no",
)  # fmt: skip
XNLI = {0: "entailment", 1: "neutral", 2: "contradiction"}


def entailment_folder(folder: Path, labels: Mapping[int, str] | None = None, *, family: str = "bert") -> Path:
    """Write a model of one layer with these labels."""
    import torch
    from transformers import BertTokenizerFast

    folder.mkdir()
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(TOKENS), encoding="utf-8")
    BertTokenizerFast(str(vocabulary), model_max_length=64).save_pretrained(folder)
    torch.manual_seed(1)
    model = _model(family, dict(labels or XNLI))
    for weight in model.parameters():  # as they come, all pairs would be alike
        if weight.dim() > 1:
            torch.nn.init.normal_(weight)
    model.save_pretrained(folder)
    return folder


def _model(family: str, labels: dict[int, str]) -> Any:
    size = {
        "vocab_size": len(TOKENS), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 64, "id2label": labels,
        "label2id": {name: number for number, name in labels.items()},
    }  # fmt: skip
    if family == "bert":
        from transformers import BertConfig, BertForSequenceClassification

        return BertForSequenceClassification(BertConfig(**size))
    from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

    relative = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
    return DebertaV2ForSequenceClassification(DebertaV2Config(**size, **relative))
