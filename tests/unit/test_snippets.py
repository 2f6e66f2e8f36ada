"""The documentation's Python, checked by mypy and pyright as a reader's editor would: results are typed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRELUDE = 'text: str = "Crocks are sold out in Lyon."\n'  # what the snippets leave to the reader
MORE = '''
from typing import assert_type

from thothy_ai import AsyncProducer, Ended, EnqueueOptions, Job, Jobs
from thothy_ai.jobs import Artifact, Hook, HookArtifact, Request, TrendSummary, TrendSummaryArtifact


class Bare(Request):
    """A request that names no artifact."""

    source: str


def many(producer: Producer, options: EnqueueOptions) -> None:
    assert_type(producer.enqueue_many([Hook(source="a"), Hook(source="b")]), Jobs[Job[HookArtifact]])
    assert_type(producer.enqueue_many(Hook(source=name) for name in ("a", "b")), Jobs[Job[HookArtifact]])
    assert_type(producer.enqueue_many((Hook(source=name), options) for name in "ab"), Jobs[Job[HookArtifact]])
    mixed: list[Request] = [Hook(source="a"), TrendSummary(source="b")]
    assert_type(producer.enqueue_many(mixed), Jobs[Job[Artifact]])
    assert_type(producer.enqueue(Bare(source="a")).result(), Artifact)
    assert_type(producer.wait_all(producer.enqueue_many([Hook(source="a")])), list[Ended[HookArtifact]])
    same: list[Job[HookArtifact]] = producer.enqueue_many([Hook(source="a")])
    assert_type(producer.wait_all(same)[0].result(), HookArtifact)
    found: Job = producer.job("id")
    assert_type(found.result(), Artifact)


async def asynchronous(producer: AsyncProducer) -> None:
    job = await producer.enqueue(TrendSummary(source="a"))
    assert_type(await job.result(), TrendSummaryArtifact)
    assert_type((await producer.enqueue_many([Hook(source="a")]))[0].kind, str)
'''


def snippets(page: str) -> list[str]:
    found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    assert found, page
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The snippets as files, correct and with a mistake in their last line."""
    folder = tmp_path_factory.mktemp("snippets")
    readme = "\n".join(snippet for snippet in snippets("README.md") if "Producer.from_env()" in snippet)
    quiz, produce, *_ = snippets("docs/kinds.md")
    future, rest = readme.split("\n", 1) if readme.startswith("from __future__") else ("", readme)
    notifications = "\n".join(snippets("docs/notifications.md"))
    readme = f"{future}\n{PRELUDE}{rest}"
    sources = {
        "quiz": quiz,
        "readme_good": f"{readme}\nwords: str = artifact.variants[0].text\n{MORE}",
        "readme_wrong": f"{readme}\nprint(artifact.nonsense)\n",
        "produce_good": f"{produce}\nwords: str = artifact.question\n",
        "produce_wrong": f"{produce}\nprint(artifact.nonsense)\n",
        "notifications_good": f"{PRELUDE}{notifications}",
        "name_wrong": "from thothy_ai import Nonsense\n",
    }
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source, "utf-8")
    return folder


def wrong(folder: Path) -> set[tuple[str, int]]:
    """The lines at which an error is expected: the last line of each file with a mistake."""
    return {(file.name, len(file.read_text("utf-8").splitlines())) for file in folder.glob("*_wrong.py")}


def test_mypy_knows_the_results_types(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".cache" / "mypy-snippets"), "."],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    errors = re.findall(r"^(\w+\.py):(\d+): error: ", done.stdout, re.MULTILINE)
    assert {(file, int(line)) for file, line in errors} == wrong(folder), done.stdout + done.stderr


def test_pyright_knows_the_results_types(folder: Path) -> None:
    settings = {"typeCheckingMode": "standard", "include": ["."]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    checker = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(checker, cwd=folder, capture_output=True, text=True, check=False)
    found = [problem for problem in json.loads(done.stdout)["generalDiagnostics"] if problem["severity"] == "error"]
    errors = {(Path(problem["file"]).name, problem["range"]["start"]["line"] + 1) for problem in found}
    assert errors == wrong(folder), done.stdout + done.stderr
