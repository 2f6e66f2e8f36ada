"""What `thothy ask` shows: the text on standard output as it is written, everything else on standard error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import typer

from thothy_ai.admin.durations import spell
from thothy_ai.cli.views.live_json import LiveJson
from thothy_ai.cli.views.tables import count, print_json, printable
from thothy_ai.engine.api import EngineInfo, FinishReason
from thothy_ai.evaluation.ask import AskAttempt


class AskView:
    """Shows the attempts at one question. With `as_json`, one document at the end and nothing before it."""

    def __init__(self, kind: str | None, attempts: int, *, as_json: bool) -> None:
        self._kind = kind
        self._attempts = attempts
        self._as_json = as_json
        self._info: EngineInfo | None = None
        self._shown: list[AskAttempt] = []
        self._json = LiveJson()
        self._last = "\n"  # character shown

    def begin(self, info: EngineInfo, seed: int) -> None:
        self._info = info
        if self._attempts > 1:
            self._note(f"Attempt {len(self._shown) + 1} of {self._attempts}, seed {seed}")

    def output(self) -> None:
        self._json = LiveJson()
        self._end_text()

    def text(self, text: str) -> None:
        if self._as_json:
            return
        shown = printable(self._json.feed(text) if self._kind else text)
        if shown:
            self._last = shown[-1]
            typer.echo(shown, nl=False)

    @asynccontextmanager
    async def showing(self) -> AsyncIterator[None]:
        """Begin a new line after the block, for whatever follows, such as an error."""
        try:
            yield
        finally:
            self._end_text()

    def _end_text(self) -> None:
        if self._last != "\n":
            self._last = "\n"
            typer.echo()

    def attempt(self, attempt: AskAttempt) -> None:
        self._shown.append(attempt)
        self._end_text()
        judged = attempt.judgement
        if judged is not None and judged.accepted:
            more = f"; a worker would queue {count(len(judged.follow_ups), 'follow-up job')}"
            waits = " once a person has approved it" if judged.needs_review else ""
            self._note(f"accepted{more}{waits}" if judged.follow_ups else "accepted")
        elif judged is not None:
            self._note(f"rejected: {judged.reason}: {judged.detail}")
        elif attempt.last is not None and attempt.last.finish_reason is FinishReason.LENGTH:
            self._note("The text stops at --max-tokens.")
        choices = attempt.last.choices if attempt.last is not None else ()
        if means := [choice.mean_logprob for choice in choices if choice.mean_logprob is not None]:
            self._note(f"mean log-probability of a token: {', '.join(f'{mean:.2f}' for mean in means)}")
        usage = attempt.usage
        rate = f", {attempt.tokens_per_second:.1f} tokens/s" if attempt.tokens_per_second else ""
        calls = f"{count(len(attempt.results), 'call')}, " if len(attempt.results) > 1 else ""
        prompt = f"{calls}{count(usage.prompt_tokens, 'prompt token')} ({usage.cached_tokens:,} cached)"
        self._note(f"{prompt}, {count(usage.output_tokens, 'output token')}, {spell(attempt.seconds)}{rate}")
        device, model = (self._info.device, self._info.model) if self._info else ("", "")
        unit = "GPU-seconds" if device.startswith("cuda") else "compute-seconds"
        self._note(f"{usage.compute_seconds:.2f} {unit}, {model} on {device}, seed {attempt.seed}")

    def close(self) -> None:
        """Print the document of --json, once all attempts have ended."""
        if self._as_json and self._info is not None:
            engine = {"model": self._info.model, "device": self._info.device}
            print_json(
                {
                    "kind": self._kind,
                    **engine,
                    "accepted": self._shown[-1].accepted,
                    "attempts": [attempt.to_json() for attempt in self._shown],
                }
            )

    def _note(self, line: str) -> None:
        if not self._as_json:
            typer.echo(printable(line), err=True)
