"""A kind about a source, without checks; its artifact is one line."""

from __future__ import annotations

from typing import Annotated

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.kind import JobKind
from thothy_ai.jobs.api.plan import Sampling
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.plans.one_call import OneCall
from thothy_ai.jobs.prompts import about_source
from thothy_ai.jobs.schema import prose


class AboutArtifact(Artifact):
    about: Annotated[str, prose(1, 100)]


class About(WritingRequest[AboutArtifact]):
    pass


KIND = JobKind(
    name="about",
    request=About,
    artifact=AboutArtifact,
    plan=OneCall(
        artifact=AboutArtifact,
        prompt=lambda request, context: about_source(request.source, "What is it about?", context),
        sampling=lambda _: Sampling(max_tokens=16),
        checks=lambda _, __: iter(()),
    ),
    locale=lambda request: request.locale,
    source=lambda request: request.source,
)
