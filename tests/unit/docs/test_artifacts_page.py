"""The page about artifacts: every kind has a section, and its example passes the kind's validators."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from thothy_ai.jobs import Artifact, ReportArtifact, Request, registry

PAGE = (Path(__file__).parents[3] / "docs" / "artifacts.md").read_text(encoding="utf-8")
KINDS = registry.names()  # when tests are collected: some register kinds of their own
OF_SOURCES = [kind for kind in KINDS if "source" in registry.find(kind).request.model_fields]
NAMES = "|".join(KINDS)
SECTIONS = dict(re.findall(rf"^## ({NAMES})\n(.*?)(?=^## (?:{NAMES})\n|\Z)", PAGE, re.MULTILINE | re.DOTALL))


def fences(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


(SOURCE,) = fences("text", PAGE)


def example(kind: str) -> tuple[Request, Artifact]:
    request, artifact = map(json.loads, fences("json", SECTIONS[kind]))
    found = registry.find(kind)
    return found.request.model_validate({"source": SOURCE} | request), found.artifact.model_validate(artifact)


def test_every_kind_has_a_section() -> None:
    assert sorted(SECTIONS) == sorted(KINDS)


@pytest.mark.parametrize("kind", OF_SOURCES)
def test_the_example_passes_all_validators(kind: str) -> None:
    request, artifact = example(kind)
    plan: Any = registry.find(kind).plan
    assert [found for found in plan.checks(request, artifact) if found] == []


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(OF_SOURCES)))
def test_the_example_is_what_the_kind_takes_and_returns(kind: str) -> None:
    request, artifact = map(json.loads, fences("json", SECTIONS[kind]))
    found = registry.find(kind)
    assert found.request.model_validate(request).body == request
    assert found.artifact.model_validate(artifact).markdown


@pytest.mark.parametrize("kind", OF_SOURCES)
def test_the_command_has_options_of_the_kind(kind: str) -> None:
    (command,) = fences("sh", SECTIONS[kind])
    assert command.startswith(f"thothy enqueue {kind} --source-file notes.txt")
    options = {option.replace("-", "_") for option in re.findall(r"--([a-z-]+)", command)} - {"source_file"}
    assert options <= set(registry.find(kind).request.model_fields)


def test_the_document_is_the_report_s() -> None:
    _, artifact = example("report")
    assert isinstance(artifact, ReportArtifact)
    assert fences("markdown", SECTIONS["report"]) == [artifact.markdown]
