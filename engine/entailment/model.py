"""An entailment model: a folder of any sequence classifier of `transformers` that has a label for entailment.

Examples are mDeBERTa or XLM-R for XNLI (three labels), and fact checkers with two. The label names are in config.json.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.execution.device import resolve_device

ENTAILMENT, NEUTRAL, CONTRADICTION = "entailment", "neutral", "contradiction"
_NAMES: Mapping[str, frozenset[str]] = {
    ENTAILMENT: frozenset({"entailment", "entail", "entails", "entailed", "supported", "supports", "consistent"}),
    CONTRADICTION: frozenset({"contradiction", "contradict", "contradicts", "contradicted", "refuted", "refutes"}),
}
_MAX_TOKENS = 512  # per pair, the length that these models are trained with
_BATCH_TOKENS = {"cpu": 2_048, "cuda": 32_768}


class Batch(NamedTuple):
    """The labels of some pairs by place, None for pairs that cannot be judged, and the seconds spent on them."""

    labels: dict[int, str | None]
    seconds: float


class EntailmentModel:
    """Judges pairs in batches of similar lengths."""

    def __init__(self, folder: Path, device: str) -> None:
        """Load the model; ModelLoadError names a folder that is not an entailment model."""
        from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: PLC0415  slow
        from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415  as above

        disable_progress_bar()
        self._device = resolve_device(device)
        if not folder.is_dir():
            raise ModelLoadError(f"--verifier {folder}: not a folder")
        try:
            loaded = AutoModelForSequenceClassification.from_pretrained(
                folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
            )
            self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # transformers raises many types for an unreadable folder
            raise ModelLoadError(f"--verifier {folder}: {' '.join(str(error).split())}") from error
        model, report = loaded
        if missing := sorted(report["missing_keys"]):
            raise ModelLoadError(f"--verifier {folder}: the weights lack {', '.join(missing[:3])}")
        self._labels = roles(model.config.id2label, folder)
        self._model = model.eval().to(self._device)
        limits = (_MAX_TOKENS, self._tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None))
        self._max_tokens = min(limit for limit in limits if limit)

    def judged(self, pairs: Sequence[tuple[str, str]]) -> Iterable[Batch]:
        """Judge pairs batch by batch, longest first. A pair that cannot be computed does not spoil the others."""
        encoded = self._tokenizer(
            [premise for premise, _ in pairs],
            [claim for _, claim in pairs],
            truncation="longest_first",
            max_length=self._max_tokens,
        )
        lengths = [len(tokens) for tokens in encoded["input_ids"]]
        waiting = sorted(range(len(pairs)), key=lambda place: -lengths[place])
        most = _BATCH_TOKENS[self._device.type]
        while waiting:
            size = max(1, most // lengths[waiting[0]])
            batch, waiting = waiting[:size], waiting[size:]
            yield from self._batches(encoded, batch)

    def _batches(self, encoded: Any, places: Sequence[int]) -> Iterable[Batch]:  # noqa: ANN401  a BatchEncoding
        began = time.perf_counter()
        try:
            rows = {key: [values[place] for place in places] for key, values in encoded.items()}
            tensors = self._tokenizer.pad(rows, return_tensors="pt").to(self._device)
            with torch.inference_mode():
                logits = self._model(**tensors).logits.float().cpu()
            # A NaN score gives no label: the pair counts as not judged.
            labels = [self._labels[int(row.argmax())] if row.isfinite().all() else None for row in logits]
        except (RuntimeError, ValueError, IndexError):
            if len(places) > 1:
                for place in places:
                    yield from self._batches(encoded, [place])
                return
            labels = [None]
        yield Batch(dict(zip(places, labels, strict=True)), time.perf_counter() - began)


def roles(names: Mapping[Any, str], folder: Path) -> dict[int, str]:
    """The meaning of each label by its number; ModelLoadError if none means entailment."""
    found = {
        int(number): next((role for role, known in _NAMES.items() if name.strip().lower() in known), NEUTRAL)
        for number, name in names.items()
    }
    if ENTAILMENT not in found.values() or len(found) < 2:
        listed = ", ".join(map(str, names.values()))
        raise ModelLoadError(
            f"--verifier {folder}: none of its labels says entailment ({listed}): name them in config.json, under "
            "id2label, as the model was trained: entailment, neutral, contradiction"
        )
    return found
