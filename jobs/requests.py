"""Base classes of requests about a source text."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from thothy_ai.jobs.kind import A_co, Request
from thothy_ai.jobs.locales import Locale

ShortText = Annotated[str, Field(max_length=200)]


class SourceRequest(Request[A_co]):
    """A request about a source text. Requests with the same source are siblings and share its KV."""

    source: Annotated[str, Field(description="Text that the job is about.")]


class WritingRequest(SourceRequest[A_co]):
    """A request for new text about the source, written for an audience in the language of `locale`."""

    audience: Annotated[ShortText, Field(description="Readers to write for.")] = "a general audience"
    locale: Annotated[Locale, Field(description="Language to write in.")] = "en"
