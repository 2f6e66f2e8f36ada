"""Entailment models: their labels, batches that change nothing, and folders that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.entailment import TOKENS, XNLI, entailment_folder
from tests.unit.jobs.kinds.test_trend_summary import GOOD, REQUEST
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.entailment import model as module
from thothy_ai.engine.entailment.model import EntailmentModel, roles
from thothy_ai.engine.entailment.process import judged
from thothy_ai.engine.wire.verifier_messages import JudgePairs
from thothy_ai.jobs import Call, Context, Output, registry
from thothy_ai.jobs.api.plan import run

# Importing DeBERTa's module of transformers compiles a function in a way that torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
PAIRS = [
    ("the tower has stairs", "it has no stairs"),
    ("a mayor opened the tower in june", "a mayor"),
    ("rain " * 100, "no rain"),
    ("", "it"),
    ("the mayor opened it", "the rain opened the tower in june " * 20),
    ("no", "no"),
    ("a mayor", "stairs"),
    ("it has stairs in june", "the tower opened"),
]


def labels_of(model: EntailmentModel, pairs: list[tuple[str, str]]) -> list[str | None]:
    found = {place: label for batch in model.judged(pairs) for place, label in batch.labels.items()}
    return [found[place] for place in range(len(pairs))]


@pytest.mark.parametrize("family", ["bert", "deberta"])
def test_a_pair_has_the_same_label_in_any_batch(tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = EntailmentModel(entailment_folder(tmp_path / family, family=family), "cpu")
    together = labels_of(model, PAIRS)
    assert set(together) <= set(XNLI.values())
    assert len(set(together)) > 1
    assert together == [labels_of(model, [pair])[0] for pair in PAIRS]
    monkeypatch.setitem(module._BATCH_TOKENS, "cpu", 1)
    assert labels_of(model, PAIRS) == together


def test_a_pair_without_a_finite_score_has_no_label_and_spoils_no_other(tmp_path: Path) -> None:
    folder = entailment_folder(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["bert.embeddings.word_embeddings.weight"][TOKENS.index("rain")] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert [label is None for label in labels_of(EntailmentModel(folder, "cpu"), PAIRS)] == [
        "rain" in premise + claim for premise, claim in PAIRS
    ]


def test_a_batch_that_fails_is_judged_pair_by_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = EntailmentModel(entailment_folder(tmp_path / "model"), "cpu")
    expected = labels_of(model, PAIRS)
    forward = type(model._model).forward

    def failing(self: torch.nn.Module, **tensors: torch.Tensor) -> object:
        if len(tensors["input_ids"]) > 1 or tensors["input_ids"].eq(TOKENS.index("rain")).any():
            raise RuntimeError("out of memory")
        return forward(self, **tensors)

    monkeypatch.setattr(type(model._model), "forward", failing)
    found = labels_of(model, PAIRS)
    assert found == [None if "rain" in a + b else label for (a, b), label in zip(PAIRS, expected, strict=True)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({0: "ENTAILMENT", 1: "NEUTRAL", 2: "CONTRADICTION"}, ["entailment", "neutral", "contradiction"]),
        ({"0": "contradiction", "1": "neutral", "2": "entailment"}, ["contradiction", "neutral", "entailment"]),
        ({0: "entailment", 1: "not_entailment"}, ["entailment", "neutral"]),
        ({0: "Refutes", 1: "Supports"}, ["contradiction", "entailment"]),
        ({0: "inconsistent", 1: "consistent"}, ["neutral", "entailment"]),
    ],
)
def test_labels_are_read_by_their_names(names: dict[int, str], expected: list[str]) -> None:
    assert list(roles(names, Path("m")).values()) == expected


@pytest.mark.parametrize(
    "names", [{0: "LABEL_0", 1: "LABEL_1"}, {0: "not_entailment", 1: "neutral"}, {0: "entailment"}]
)
def test_a_model_that_cannot_say_entailment_is_refused(names: dict[int, str]) -> None:
    with pytest.raises(ModelLoadError, match=r"--verifier m: none of its labels says entailment \(.*id2label"):
        roles(names, Path("m"))


def test_a_folder_that_is_not_such_a_model_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="nowhere: not a folder"):
        EntailmentModel(tmp_path / "nowhere", "cpu")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelLoadError, match=r"--verifier .*empty: "):
        EntailmentModel(tmp_path / "empty", "cpu")
    headless = entailment_folder(tmp_path / "headless")
    weights = load_file(headless / "model.safetensors")
    del weights["classifier.weight"]
    save_file(weights, headless / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"the weights lack classifier\.weight"):
        EntailmentModel(headless, "cpu")
    unnamed = entailment_folder(tmp_path / "unnamed")
    config = json.loads((unnamed / "config.json").read_text())
    config["id2label"] = {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
    (unnamed / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelLoadError, match="none of its labels says entailment"):
        EntailmentModel(unnamed, "cpu")


def test_requests_share_batches_and_their_seconds(tmp_path: Path) -> None:
    model = EntailmentModel(entailment_folder(tmp_path / "model"), "cpu")
    requests = [JudgePairs(7, tuple(PAIRS[:2])), JudgePairs(9, tuple(PAIRS[2:]))]
    labels: dict[int, dict[int, str | None]] = {7: {}, 9: {}}
    seconds = {7: 0.0, 9: 0.0}
    for batch in judged(model, requests):
        for each in batch.requests:
            labels[each.number] |= each.labels
            seconds[each.number] += each.seconds
    assert [*(labels[7][place] for place in range(2)), *(labels[9][place] for place in range(len(PAIRS) - 2))] == (
        labels_of(model, PAIRS)
    )
    assert seconds[9] > seconds[7] > 0


def test_a_summary_is_verified_by_the_model_of_a_folder_whatever_the_order_of_its_labels(tmp_path: Path) -> None:
    request = REQUEST.model_copy(update={"verification": True})
    labels: dict[str, list[str]] = {}
    for order in (("entailment", "neutral", "contradiction"), ("contradiction", "neutral", "entailment")):
        model = EntailmentModel(entailment_folder(tmp_path / order[0], dict(enumerate(order))), "cpu")

        def answer(call: Call, model: EntailmentModel = model) -> Output:
            if not call.pairs:
                return Output(json.dumps(GOOD))
            return Output(json.dumps(labels_of(model, list(call.pairs))))

        verdict = run(registry.find("trend_summary").plan(request, Context(verifier=True)), answer)
        assert verdict.verification is not None
        labels[order[0]] = [claim.label for claim in verdict.verification.claims]
        doubted = {finding.reason for finding in verdict.findings if finding.by == "verification"}
        assert ("contradicts_source" in doubted) is ("contradicted" in labels[order[0]])
    turned = {"supported": "contradicted", "contradicted": "supported"}
    assert labels["contradiction"] == [turned.get(label, label) for label in labels["entailment"]]
    assert {"supported", "contradicted"} & set(labels["entailment"]), labels
