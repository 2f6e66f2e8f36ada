"""Checkpoints that tie the head to the embedding, and what they store of both."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.checkpoints import gptq
from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.published_formats import write_dequantized
from tests.support.quantized_models import quantized_model
from tests.support.tiny_models import FAMILIES, reference_model, tiny_model
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.model_check.check import check_model
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")
TOKENS = [5, 9, 77, 120, 3, 44, 8]
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def loaded(folder: Path) -> LoadedModel:
    return load_model(folder, device=CPU, dtype=torch.float32)


def logits(model: LoadedModel) -> Tensor:
    return PagedRun(model.model, 1, 8).step({0: TOKENS})[0]


def tie(folder: Path, edit: Callable[[dict[str, Tensor]], object]) -> None:
    """Have the configuration tie the head, after a change of the tensors."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def kept(tensors: dict[str, Tensor]) -> None:
    embedding = EMBEDDING if EMBEDDING in tensors else "backbone.embeddings.weight"  # Nemotron-H's
    assert not torch.equal(tensors[HEAD], tensors[embedding])


def one_number_differs(tensors: dict[str, Tensor]) -> None:
    tensors[HEAD] = tensors[EMBEDDING].clone()
    tensors[HEAD][-1, -1] += 1


def same(tensors: dict[str, Tensor]) -> None:
    tensors[HEAD] = tensors[EMBEDDING].clone()


def of_another_type(tensors: dict[str, Tensor]) -> None:
    tensors[HEAD] = tensors[EMBEDDING].to(torch.bfloat16)


def head_alone(tensors: dict[str, Tensor]) -> None:
    del tensors[EMBEDDING]


def embedding_alone(tensors: dict[str, Tensor]) -> None:
    del tensors[HEAD]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_that_differs_counts(family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tiny_model(family, tmp_path, tie_word_embeddings=False)
    tie(folder, kept)
    with caplog.at_level(logging.WARNING):
        model = loaded(folder)
    assert "the configuration ties the head to the embedding, but the weights have another head" in caplog.text
    assert not model.config.tied_embeddings
    with torch.no_grad():
        expected = reference_model(folder)(torch.tensor([TOKENS])).logits[0]
    torch.testing.assert_close(logits(model), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("edit", "tied"),
    [
        (one_number_differs, False),
        (of_another_type, False),
        (same, True),
        (head_alone, True),
        (embedding_alone, True),
    ],
)
def test_what_is_stored_decides(edit: Callable[[dict[str, Tensor]], object], tmp_path: Path, *, tied: bool) -> None:
    folder = tiny_model("llama", tmp_path, tie_word_embeddings=False)
    tie(folder, edit)
    model = loaded(folder)
    assert model.config.tied_embeddings == tied
    with torch.no_grad():
        expected = reference_model(folder)(torch.tensor([TOKENS])).logits[0]
    torch.testing.assert_close(logits(model), expected, atol=1e-4, rtol=0)
    report = check_model(folder, EngineOptions(url="", device="cpu"))
    assert {problem.part for problem in report.problems} == {"tokenizer"}, "which the folder lacks"
    stored = sum(tensor.numel() for tensor in load_file(folder / "model.safetensors").values())
    assert report.parameters == stored - (edit is same) * 131 * 48


def test_a_quantized_head_counts(tmp_path: Path) -> None:
    scheme = gptq(4, 32, lm_head=True)
    folder = quantized_model(scheme, tmp_path, vocab_size=136)  # whole words

    def quantize_head(tensors: dict[str, Tensor]) -> None:
        stored = scheme.store(tensors.pop(HEAD))
        tensors.update({f"lm_head.{ending}": tensor.contiguous() for ending, tensor in stored.items()})

    tie(folder, quantize_head)
    model = loaded(folder)
    assert not model.config.tied_embeddings
    plain = write_dequantized(folder, tmp_path / "dequantized")
    torch.testing.assert_close(logits(model), logits(loaded(plain)), atol=1e-4, rtol=0)
