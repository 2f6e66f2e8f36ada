"""`jsonl.md`: the lines of `thothy enqueue --jsonl`, and the fields of every built-in kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from docs.generate.exit_codes import empty_folder
from docs.generate.markdown import code, fence, listed, page, paragraph, table
from docs.generate.settings import shown, type_of
from thothy_ai.cli.inputs.jsonl import KEYS, JobLines
from thothy_ai.errors import InvalidJobError
from thothy_ai.jobs import registry
from thothy_ai.jobs.registry import AnyKind
from thothy_ai.jobs.text.locales import LANGUAGES
from thothy_ai.jobs.text.strings import MAX_CHARACTERS
from thothy_ai.producer.drafts import MAX_CALL_CHARS, MAX_KEY_LENGTH
from thothy_ai.queue.canonical import MAX_REQUEST_CHARS
from thothy_ai.queue.moments import RANGE

MEANINGS = {
    "kind": ("text", "Required. The job kind."),
    "request": ("object", "Required. The kind's fields, as below."),
    "priority": (
        "whole number, -100 to 100",
        "Higher priorities run first; a point counts a day of waiting. Default: 0.",
    ),
    "deadline": ("time", "The job expires if it has not finished by then. Default: none."),
    "not_before": ("time", "The job does not start earlier. Default: at once."),
    "idempotency_key": (
        f"text, at most {MAX_KEY_LENGTH} characters",
        "The same key and request again return the first job; the same key with another request is an error.",
    ),
    "max_attempts": (
        "whole number, 1 to 32,767",
        "How many failures make the job dead. Default: `THOTHY_MAX_ATTEMPTS`.",
    ),
    "max_compute_seconds": (
        "number above 0",
        "Compute-seconds that its attempts may use together; then it is given up: `budget_spent`. Default: no limit.",
    ),
    "model": (
        "name",
        "The model, adapter or alias to run on; it waits if no engine serves it. Default: the kind's, otherwise any.",
    ),
}
SOURCE = "Orders for clay crocks doubled within a year. Workshops on kimchi are booked out until spring."
EXAMPLES: tuple[dict[str, Any], ...] = (
    {"kind": "hook", "request": {"source": SOURCE, "channel": "newsletter"}, "idempotency_key": "crocks/hook"},
    {
        "kind": "trend_summary",
        "request": {"source": SOURCE, "audience": "shop owners", "translate_to": ["de", "fr"]},
        "priority": 5,
        "deadline": "2h",
    },
    {
        "kind": "report_section",
        "request": {"source": SOURCE, "heading": "What makers say"},
        "max_attempts": 5,
        "max_compute_seconds": 2.5,
    },
    {
        "kind": "translation",
        "request": {"source": SOURCE, "target_locale": "de"},
        "not_before": "30m",
        "model": "house-model",
    },
)
WRONG = (
    '{"kind": "haiku", "request": {"source": "Crocks are back."}}',
    '{"kind": "hook"}',
    '{"kind": "hook", "request": {"source": "Crocks are back.", "chanel": "video"}}',
    '{"kind": "hook", "request": {"source": "Crocks are back."}, "priorty": 5}',
    '{"kind": "hook", "request": {"source": "Crocks are back."}, "deadline": "tomorrow"}',
    '{"kind": "hook", "request": {"source": " "}}',
    '{"kind": "hook", "request": ',
)


def jsonl_page() -> str:
    """The page."""
    lines = "\n".join(json.dumps(example) for example in EXAMPLES)
    keys = ((code(key), *MEANINGS[key]) for key in KEYS)
    return page(
        "JSONL format",
        "The format of the file that `thothy enqueue --jsonl FILE` reads: one JSON object per line, in UTF-8, one job"
        " each.",
        "Blank lines are skipped. All jobs are enqueued in one transaction, or none if a line is wrong: the error names"
        " the line.\n`-` reads standard input: `generate-jobs | thothy enqueue --jsonl -`. A request may have"
        f" {MAX_REQUEST_CHARS:,} characters, and those of a file\n{MAX_CALL_CHARS:,}, a text that several have counted"
        " once.",
        table(("Key", "Value", "Meaning"), keys),
        "A time is a duration from now, such as `2h`, or a date and time, such as `2026-11-21T06:00` (local time) or"
        f" `2026-11-21T06:00+01:00`,\n{RANGE}. A local time that the clock skips in spring is refused; one that it"
        " shows twice in autumn is the first of both.",
        "## Examples",
        fence(lines, "jsonl"),
        "A line that is wrong, and the error, which names the file and the line. The exit code is 2.",
        table(("Line", "Error"), ((code(line), code(error_of(line))) for line in WRONG)),
        "## Requests",
        f"Texts may not be blank, and have at most {MAX_CHARACTERS:,} characters. A locale is a language such as `en`,"
        f" or a language and a\nregion such as `pt-BR`; the languages are {listed(sorted(LANGUAGES))}.",
        *(_kind(registry.find(name)) for name in registry.names()),
        "A kind of your own has the fields of its request class; `thothy enqueue KIND --help` lists those of every"
        " kind. [Writing a job kind](../kinds.md)\nsays how.",
    )


def error_of(line: str) -> str:
    """What the command says about a file `jobs.jsonl` with this line."""
    with empty_folder():
        Path("jobs.jsonl").write_text(line + "\n", encoding="utf-8")
        try:
            list(JobLines("jobs.jsonl"))
        except InvalidJobError as error:
            return f"thothy: {error}"
    raise ValueError(f"nothing is wrong with {line}")


def _kind(kind: AnyKind) -> str:
    rows = (_field(name, field) for name, field in kind.request.model_fields.items())
    return "\n\n".join(
        (f"### {kind.name}", paragraph(kind.request.__doc__), table(("Field", "Type", "Default", "Description"), rows))
    )


def _field(name: str, field: FieldInfo) -> tuple[str, str, str, str]:
    default = "required" if field.is_required() else shown(field.get_default(call_default_factory=True))
    return code(name), type_of(field.annotation, field.metadata), default, field.description or "-"
