"""Modules of kinds are imported by name or from a file; a file shadows nothing, and a failure names its cause."""

from __future__ import annotations

import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from thothy_ai.jobs.loading import LoadError, load


@pytest.fixture(autouse=True)
def _forget_modules() -> Iterator[None]:
    """What a test imports does not outlive the test."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refusal(entry: str | Path) -> str:
    before = dict(sys.modules)
    with pytest.raises(LoadError) as caught:
        load(str(entry))
    assert "\n" not in str(caught.value)
    assert sys.modules == before or not str(entry).endswith(".py")  # nothing half-imported stays
    return str(caught.value)


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, "utf-8")
    return file


def test_a_module_by_its_name() -> None:
    assert load("json").__name__ == "json"


def test_a_file_is_imported_once_and_under_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "sonnets.py", "lines = []\n")
    module = load(str(file))
    assert load(str(file)) is module is sys.modules["sonnets"]
    monkeypatch.chdir(tmp_path)
    assert load("./sonnets.py") is module


def test_a_file_that_was_imported_before_is_the_same_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "sonnets.py", "lines = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    import sonnets  # type: ignore[import-not-found]

    assert load(str(file)) is sonnets


def test_a_file_on_the_import_path_gets_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "sonnets.py", "lines = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = load(str(file))
    import sonnets

    assert module is sonnets


@pytest.mark.parametrize("name", ["queue", "jobs", "statistics", "my-kind"])
def test_a_file_shadows_nothing(tmp_path: Path, name: str) -> None:
    """`queue` is imported already, `statistics` is not, and `my-kind` is no identifier."""
    paths, finders = list(sys.path), list(sys.meta_path)
    module = load(str(write(tmp_path, f"{name}.py", "mine = True\n")))
    assert module.mine
    assert sys.modules["queue"] is queue
    import statistics

    assert statistics.mean([1, 3]) == 2
    assert (sys.path, sys.meta_path) == (paths, finders)


def test_a_kind_imports_modules_beside_it_but_only_if_there_are_no_others(tmp_path: Path) -> None:
    write(tmp_path, "my_prompts.py", "ask = 'Why?'\n")
    write(tmp_path, "statistics.py", "raise RuntimeError('shadowed')\n")
    file = write(tmp_path, "sonnets.py", "import statistics\nfrom my_prompts import ask\n")
    assert load(str(file)).ask == "Why?"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("import re\nx = y\n", "NameError: name 'y' is not defined ({file}:2)"),
        ("def f(:\n", "SyntaxError: invalid syntax ({file}:1)"),
        ("\n\nimport no_such_library\n", "ModuleNotFoundError: No module named 'no_such_library' ({file}:3)"),
        ("raise ValueError('two\\nlines')\n", "ValueError: two lines ({file}:1)"),
        ("import sys\nsys.exit('no')\n", "SystemExit: no ({file}:2)"),
        ("import json\n\njson.loads('{')\n", "JSONDecodeError: Expecting property name"),
    ],
)
def test_a_failure_names_its_cause_and_its_line(tmp_path: Path, text: str, cause: str) -> None:
    file = write(tmp_path, "sonnets.py", text)
    assert refusal(file).startswith(f"{file} cannot be imported: {cause.format(file=file)}")


def test_an_unbounded_artifact_is_blamed_on_the_line_of_the_kind(tmp_path: Path) -> None:
    text = (
        "from thothy_ai.jobs import Artifact, OneCall\n"
        "class Noted(Artifact):\n    note: str\n"
        "PLAN = OneCall(Noted, *[None] * 3)\n"
    )
    file = write(tmp_path, "sonnets.py", text)
    assert refusal(file) == (
        f"{file} cannot be imported: SchemaError: Noted.note: the string needs a bounded pattern, for example"
        f" prose(20, 200) ({file}:4)"
    )


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal("sonnets") == f"there is no module 'sonnets' installed, and no file sonnets.py in {tmp_path}"
    assert refusal("acme.sonnets") == "there is no module 'acme.sonnets' installed"
    (tmp_path / "acme").mkdir()
    write(tmp_path / "acme", "sonnets.py", "")
    assert refusal("acme.sonnets").endswith("; for the file acme/sonnets.py, set its path")
    assert refusal("/no/such/sonnets.py") == "there is no file /no/such/sonnets.py"
    assert refusal(tmp_path) == f"{tmp_path} is a folder; name a .py file in it"


def test_the_program_that_runs_may_be_the_kind_s_own_file(tmp_path: Path) -> None:
    text = "from thothy_ai.jobs.loading import load\nmark = object()\nprint(load(__file__).mark is mark)\n"
    file = write(tmp_path, "sonnets.py", text)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
