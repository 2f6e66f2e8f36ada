"""The reference pages say what the code says, and nothing in the code is missing from them."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.generate import exit_codes, jsonl, reasons
from docs.generate.commands import commands, split_help
from docs.generate.errors import engine_errors, errors_page
from docs.generate.metrics import counted, of_door, of_engine, of_queue
from docs.generate.pages import GUIDES, PAGES, REFERENCE
from thothy_ai.cli.inputs.jsonl import JobLines
from thothy_ai.db.states import REASONS, Action, ArtifactVerdict, Event, JobState, Outcome
from thothy_ai.engine.api.options import all_options
from thothy_ai.jobs import RejectionReason, registry
from thothy_ai.producer.decisions import CLEAN
from thothy_ai.settings import Settings

ROOT = Path(__file__).parents[3]
COMMANDS = dict(commands())


def test_every_page_is_what_the_code_says() -> None:
    """In a process of its own: other tests register kinds and metrics. Whatever is set, the pages are the same."""
    environment = os.environ | {"THOTHY_TENANT": "other", "THOTHY_LOG_LEVEL": "DEBUG", "COLUMNS": "40"}
    done = subprocess.run(
        [sys.executable, "-m", "docs.generate", "--check"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"run `make docs`: {done.stdout}{done.stderr}"
    assert {page.name for page in REFERENCE.glob("*.md")} == set(PAGES)
    index = (REFERENCE.parent / "README.md").read_text(encoding="utf-8")
    assert all(f"({name})" in index for name in GUIDES)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_says_what_it_is(name: str) -> None:
    assert (Settings.model_fields[name].description or "").endswith(".")


def test_every_engine_option_says_what_it_is() -> None:
    assert [option.name for option in all_options() if not option.option.help.endswith(".")] == []


@pytest.mark.parametrize("name", ["hook", "report_section", "translation", "trend_summary"])
def test_every_field_of_a_request_says_what_it_is(name: str) -> None:
    fields = registry.find(name).request.model_fields
    assert [field for field, info in fields.items() if not (info.description or "").endswith(".")] == []


def test_every_reason_is_explained() -> None:
    assert set(reasons.REJECTIONS) == set(RejectionReason)
    assert set(reasons.FAILURES) == {*_reasons_in_calls(), *_reasons_in_statements()} == REASONS
    assert set(reasons.ENGINE_ADVICE) == {error.code for error in engine_errors()}


def _reasons_in_calls() -> Iterator[str]:
    """Literals passed on as a reason while a job runs: a call's second argument, or a `Finish`'s `reason`."""
    for path in (path for room in ("plans", "worker") for path in (ROOT / "thothy_ai" / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield from (text for argument in _reason_arguments(node) for text in _literals(argument))


def _reason_arguments(call: ast.Call) -> Iterator[ast.expr]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    at = {"released": 1, "dead": 1, "hopeless": 1, "failed": 1, "Finish": 5}.get(name)
    if at is not None and len(call.args) > at:
        yield call.args[at]
    yield from (keyword.value for keyword in call.keywords if keyword.arg == "reason")


def _literals(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp():
            yield from (*_literals(node.body), *_literals(node.orelse))
        case ast.BoolOp(values=parts) | ast.Call(func=ast.Name(id="str"), args=parts):
            yield from (text for part in parts for text in _literals(part))


def _reasons_in_statements() -> Iterator[str]:
    """Words in quotes of statements that write a job's reason or an attempt's, except those of other columns."""
    others = {*JobState, *Outcome, *Event, *Action, *ArtifactVerdict, *RejectionReason, CLEAN}
    for path in (ROOT / "thothy_ai/db/sql").rglob("*.sql"):
        statement = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
        if re.search(r"UPDATE job\s+SET [^;]*\breason = (?!NULL)|INSERT INTO attempt\b", statement):
            yield from set(re.findall(r"'([a-z_]+)'", statement)) - others


def test_an_exception_is_listed_once_with_the_exit_code_of_a_command_that_raises_it() -> None:
    page = errors_page()
    rows = re.findall(r"^\| `(\w+Error)` +\| `\w+` +\| (\d)", page, re.MULTILINE)
    assert len(rows) == len(dict(rows)) > 20
    assert {code: dict(rows)[code] for code in ("ConfigError", "NotConnectedError", "PoolerError", "EntryError")} == {
        "ConfigError": "2", "NotConnectedError": "1", "PoolerError": "2", "EntryError": "2",
    }  # fmt: skip


def test_the_examples_of_jsonl_are_read_by_the_real_parser(tmp_path: Path) -> None:
    text = (REFERENCE / "jsonl.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```jsonl\n(.*?)```", text, re.DOTALL)
    (tmp_path / "jobs.jsonl").write_text(block, encoding="utf-8")
    entries = list(JobLines(str(tmp_path / "jobs.jsonl")))
    assert {registry.kind_of(request).name for request, _ in entries} >= {
        "hook", "report_section", "translation", "trend_summary",
    }  # fmt: skip
    given = {key for example in jsonl.EXAMPLES for key in example}
    assert given == set(jsonl.MEANINGS), "each key is shown in an example"


def test_the_examples_show_every_exit_code() -> None:
    shown = set()
    for line in exit_codes.EXAMPLES:
        with exit_codes.empty_folder():
            shown.add(exit_codes.run(line)[0])
    assert shown == set(exit_codes.MEANINGS) - {3, 130}  # these need jobs, or a hand at the keyboard


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_use_options_that_exist(name: str) -> None:
    for line in split_help(COMMANDS[name].help or "")[1]:
        words = shlex.split(line[line.index("thothy") :])
        used = max((other for other in COMMANDS if words[: len(other.split())] == other.split()), key=len)
        assert used.startswith(name), line
        if not used.startswith("thothy bench "):  # whose options are argparse's
            assert {word for word in words if re.match(r"--?[a-z]", word)} <= _options(COMMANDS[used]), line


def _options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


def test_alerts_and_rules_read_only_metrics_that_exist() -> None:
    families = {family.name for each in (counted(), of_door(), of_queue(), of_engine()) for family in each}
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8"))
    read = {
        name
        for group in rules["groups"]
        for rule in group["rules"]
        for name in re.findall(r"\bthothy_\w+", rule["expr"])
    }
    assert len(read) > 10
    assert read <= families


def test_every_family_is_in_the_matrix_of_exactness() -> None:
    """Thus the page of models says of each that it was checked."""
    from tests.support import tiny_models
    from thothy_ai.engine.models import FAMILIES

    assert set(tiny_models.FAMILIES) >= set(FAMILIES)
