"""The kind `completion`: a request of `/v1/completions`, whose artifact is the API's answer."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from thothy_ai.jobs.api.kind import JobKind
from thothy_ai.jobs.plans.answers import ApiAnswer, ApiRequest, asked

ROUTE = "/v1/completions"
MAX_PROMPTS = 64  # the API's limit
BEGINNING = 1_000  # characters or tokens of a prompt that siblings share


class Completion(ApiRequest[ApiAnswer]):
    """Continue a prompt, as `/v1/completions` does; any field of its bodies may be given."""

    prompt: Annotated[str | list[Any], Field(description="Text to continue, or a list of texts or token ids.")]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """One body per prompt; for invalid prompts the body unchanged, so that the API reports what is wrong."""
        several = isinstance(self.prompt, list) and 0 < len(self.prompt) <= MAX_PROMPTS
        if not several or isinstance(self.prompt[0], int):
            return [self.body]
        return [{**self.body, "prompt": prompt} for prompt in self.prompt]


KIND = JobKind(
    name="completion",
    request=Completion,
    artifact=ApiAnswer,
    plan=lambda request, _: asked(ROUTE, request.bodies),
    locale=lambda _: "und",  # that of the prompt
    source=lambda request: str(request.prompt[:BEGINNING]),
    model=lambda request: request.model,
)
