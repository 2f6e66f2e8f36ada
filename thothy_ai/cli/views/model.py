"""The result of `thothy models check` as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from thothy_ai.cli.views.tables import count

if TYPE_CHECKING:
    from thothy_ai.engine.model_check.report import ModelReport


def model_fields(report: ModelReport) -> Iterator[tuple[str, object]]:
    """Names and values; what the check did not find out is left out."""
    yield "model", report.path
    yield "form", report.form + (f", {count(report.files, 'file')}" if report.files else "")
    if report.stored:
        yield "stored", ", ".join(f"{kind} {_gigabytes(size)}" for kind, size in report.stored.items())
    if report.family is not None:
        part = f", the text part of {report.container}" if report.container else ""
        through = ", through transformers: tensors are compared only when it loads"
        yield "family", f"{report.family}{part}{through if report.through_transformers else ''}"
        yield "parameters", f"{report.parameters or 0:,} in {count(report.layers or 0, 'layer')}"
        yield "context", f"{report.context:,} tokens, rotary embedding: {report.rope}"
    if (text := report.text) is not None:
        ends = f"; ends: {', '.join(text.ends)}" if text.ends else ""
        yield "tokenizer", f"{text.file}, {count(text.vocabulary, 'token')}{ends}"
        if text.template_options is None:
            yield "template", "none: requests send text instead of messages"
        else:
            options = ", ".join(text.template_options)
            yield "template", f"yes; options: {options}" if options else "yes, without options"
    if (memory := report.memory) is not None:
        taken = f"weights {_gigabytes(memory.weights)} in {memory.dtype}, workspace {_gigabytes(memory.workspace)}"
        yield "memory", f"{taken}; {memory.device} has {_gigabytes(max(0, memory.available))} for them"
        yield "KV cache", f"{count(memory.kv_tokens, 'token')} left, {memory.kv_bytes_per_token:,.0f} bytes each"
        if memory.kv_tokens_by_length:
            lengths = (f"{tokens:,} in sequences of {length:,}" for length, tokens in memory.kv_tokens_by_length)
            yield "windows", f"give memory back: room for {', '.join(lengths)}"
        sequences = count(memory.budgeted_sequences, "sequence")
        room = f"of {memory.kv_budget:,} tokens: room for {sequences}, of any length within the context"
        yield "KV budget", f"not possible: {memory.keeps_all}" if memory.keeps_all else room
    if report.values_checked:
        yield "values", "all were read"
    yield from (("refused", f"{problem.part}: {problem.says}") for problem in report.problems)
    yield "loads", "yes" if report.loads else "no"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
