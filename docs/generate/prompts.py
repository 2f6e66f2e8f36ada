"""The page about prompts: what each kind sends for one request, taken from its plan."""

from __future__ import annotations

from collections.abc import Iterator

from thothy_ai.jobs import Call, Context, Hook, Message, Report, ReportSection, Request, Translation, TrendSummary
from thothy_ai.jobs.prompts import SYSTEM
from thothy_ai.jobs.registry import kind_of

_SOURCE = (
    "Small bakeries turn to slow dough\n\n"
    "Forty-one bakeries in the Rhône valley now let their dough rest for a whole night, according to the guild Pain "
    "Vivant. In 2019 there were six. It wants a rule that names the hours by spring 2027."
)
_REQUESTS: tuple[Request, ...] = (
    TrendSummary(source=_SOURCE, audience="café owners", brand_terms=("Pain Vivant",), locale="en-GB"),
    Hook(source=_SOURCE, channel="social post", variants=2, banned_phrases=("game changer",)),
    Translation(source=_SOURCE, target_locale="pt-BR", keep=("Pain Vivant",)),
    Report(source=_SOURCE, topic="why dough rests"),
    ReportSection(source=_SOURCE, heading="Who is doing it", topic="how many bakeries do it"),
)
_SMALL = Context(parameters=135_000_000)
_INTRODUCTION = f"""# Prompts

Written by `make docs` from the plans of the kinds: the calls of a first attempt, step by step as far as they depend on
the request alone. Repairs continue the same conversation; a retry ends with the reason of the last rejection.

Every prompt begins with the same system message, and with the source between marks. Siblings thus share the KV of both.
Marks in the source itself are made harmless.

```text
{SYSTEM}
```

A model below a billion parameters gets the source, or a passage of it, and a short instruction in one message instead,
and a schema that makes it stop. Its artifacts have the same shape. In the prompts below, the source is left out.
"""


def prompts_page() -> str:
    """The text of the page."""
    return "\n".join((_INTRODUCTION, *(_section(request) for request in _REQUESTS)))


def _section(request: Request) -> str:
    kind = kind_of(request)
    given = request.model_dump(mode="json", exclude={"source"}, exclude_defaults=True)
    fields = ", ".join(f"`{name}` {_shown(value)}" for name, value in given.items())
    prompts = "\n".join(_fence(call) for call in _calls(request, Context()))
    small = "\n".join(_fence(call) for call in _calls(request, _SMALL))
    return f"## {kind.name}, version {kind.version}\n\nWith {fields}.\n\n{prompts}\nFor a small model:\n\n{small}"


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _calls(request: Request, context: Context) -> Iterator[Call]:
    yield from next(kind_of(request).plan(request, context))


def _fence(call: Call) -> str:
    text = "\n\n".join(_bare(message) for message in call.messages if message.role != "system")
    return f"```text\n{text}\n```\n"


def _bare(message: Message) -> str:
    """A message without the source."""
    marked = f"<source>\n{_SOURCE}\n</source>"
    return message.content.replace(marked, "<source>…</source>").replace(_SOURCE, "…")
