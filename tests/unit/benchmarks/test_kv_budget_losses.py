"""Sources of an exact length that say what is asked for, or do not; predictions are those of one pass over the text."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.extended import write_extended
from benchmarks.kv_budget_losses import ANSWER, QUOTED, TASKS, Predictor, cases
from tests.support.gguf_files import write_gguf
from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.weights.loader import default_cache_dir

CPU = torch.device("cpu")
TOKENS = torch.randint(3, 131, (60,), generator=torch.Generator().manual_seed(3)).tolist()


def extended(tmp_path: Path, **overrides: object) -> Path:
    """A small model of 16 tokens of context, in a file, extended fourfold."""
    folder = tiny_model("llama", tmp_path / "short", max_position_embeddings=16, **overrides)
    path = write_gguf(folder, tmp_path / "short.gguf", architecture="llama")
    assert write_extended(path, tmp_path / "long.gguf", 4.0) == 64
    return tmp_path / "long.gguf"


def test_an_extended_copy_computes_what_transformers_does_with_yarn(tmp_path: Path) -> None:
    loaded = load_model(extended(tmp_path), device=CPU, dtype=torch.float32, cache_dir=tmp_path / "cache")
    assert loaded.config.max_context == 64
    rope = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
    folder = tiny_model("llama", tmp_path / "yarn", max_position_embeddings=64, rope_parameters=rope)
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(torch.tensor([TOKENS])).logits[0]
    found = PagedRun(loaded.model, 1, len(TOKENS)).step({0: TOKENS})[0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    short = load_model(tmp_path / "short.gguf", device=CPU, dtype=torch.float32, cache_dir=tmp_path / "cache")
    assert not torch.allclose(PagedRun(short.model, 1, 16).step({0: TOKENS[:16]})[0], expected[:16], atol=0.1)


def test_what_is_not_about_the_context_is_copied(tmp_path: Path) -> None:
    copy = gguf.GGUFReader(extended(tmp_path))
    source = gguf.GGUFReader(tmp_path / "short.gguf")
    assert {name: copy.fields[name].contents() for name in source.fields if name.startswith(("general.", "tok"))} == {
        name: field.contents() for name, field in source.fields.items() if name.startswith(("general.", "tok"))
    }
    for ours, theirs in zip(copy.tensors, source.tensors, strict=True):
        assert (ours.name, ours.tensor_type) == (theirs.name, theirs.tensor_type)
        assert (ours.data == theirs.data).all()


def test_a_file_is_extended_once(tmp_path: Path) -> None:
    path = extended(tmp_path)
    with pytest.raises(ModelLoadError, match=r"has a scaling of its own, rope\.scaling\.type$"):
        write_extended(path, tmp_path / "longer.gguf", 2.0)


@pytest.mark.slow
def test_predictions_are_those_of_one_pass() -> None:
    cache = default_cache_dir()  # where other tests keep this model, too: to convert it takes longer than all the rest
    model = Predictor(bundled_model_path(), CPU, 1_024, 2_048, cache)
    [case] = cases(model.encode, 250, 1)
    scores = model.scores(case.source, case.questions[:2], None)
    with_budget = model.scores(case.source, case.questions[:1], 64)
    model.close()
    loaded = load_model(bundled_model_path(), device=CPU, dtype=torch.float32, cache_dir=cache)
    for question in case.questions[:2]:
        own = [score for score in scores if score.task == question.task]
        text = [*case.source, *question.lead, *question.answer]
        logits = PagedRun(loaded.model, 1, len(text)).step({0: text})[0][-len(question.answer) - 1 : -1]
        right = torch.tensor(question.answer)
        expected = logits.log_softmax(-1).gather(1, right[:, None]).squeeze(1)
        torch.testing.assert_close(torch.tensor([score.logprob for score in own]), expected, atol=1e-3, rtol=0)
        assert [score.first for score in own] == (logits.argmax(-1) == right).tolist()
    assert sum(score.logprob for score in scores[: len(with_budget)]) > sum(score.logprob for score in with_budget) + 5


def test_sources_say_once_what_is_asked_for() -> None:
    def encode(text: str) -> list[int]:
        return [*text.encode()]

    for number, case in enumerate(cases(encode, 9_000, 3)):
        assert (len(case.source), len(case.without)) == (9_000, 9_000)
        assert tuple(question.task for question in case.questions) == TASKS
        source, without = bytes(case.source), bytes(case.without)
        fact, quotation, continuation = (bytes((*each.lead, *each.answer)) for each in case.questions)
        assert source.count(fact.strip()) == source.count(quotation.strip()) == 1
        assert fact not in without
        assert quotation not in without
        assert continuation not in source
        assert abs(source.index(fact.strip()) / 9_000 - (number + 0.5) / 3) < 0.1
        assert (len(case.questions[1].lead), len(case.questions[1].answer)) == (QUOTED, ANSWER)
