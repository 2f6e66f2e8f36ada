"""`thothy ask`: one request to the engine, outside the queue: its text as it is written, the verdict, what it took."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thothy_ai.cli.commands.enqueue import KindCommands, example_options, single_command
from thothy_ai.cli.shell import FAILED, INTERRUPTED, WRONG_INPUT, AsJson, fail, load_settings, usage
from thothy_ai.engine.api import MAX_CHOICES, MAX_LOGPROBS

if TYPE_CHECKING:
    from thothy_ai.cli.views.ask import AskView
    from thothy_ai.embedded.endpoint import Endpoint
    from thothy_ai.engine.api.template_options import TemplateOption
    from thothy_ai.evaluation.ask import AskAttempt, Prompt
    from thothy_ai.jobs.registry import AnyKind
    from thothy_ai.settings import Settings

MAX_SEED = 2**63 - 1
SEED_BITS = 32  # of a drawn seed, short enough to type again

Model = Annotated[
    Path | None,
    typer.Option(help="Start an engine with this model (a Hugging Face folder or a GGUF file) for the request."),
]
Seed = Annotated[
    int | None,
    typer.Option(min=0, max=MAX_SEED, help="Seed for sampling; each further attempt adds 1. Default: random."),
]
TemplateOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--template-option",
        metavar="NAME=VALUE",
        help="Variable of the model's chat template, such as enable_thinking=false. May be repeated.",
    ),
]


class AskCommands(KindCommands):
    """One command per job kind, with the options of `thothy enqueue KIND`."""

    def command_of(self, kind: AnyKind) -> Any:
        """The command of one kind: one option per request field, plus those of every request."""
        from thothy_ai.cli.inputs.kind_flags import flags_of, values_of, with_flags
        from thothy_ai.evaluation.ask import JobPrompt, request_body

        flags = flags_of(kind.request)

        def run(
            *,
            attempts: Annotated[
                int, typer.Option(min=1, help="How often a rejected output is tried again with another seed, at most.")
            ] = 1,
            seed: Seed = None,
            model: Model = None,
            template_option: TemplateOptions = None,
            as_json: AsJson = False,
            **given: Any,
        ) -> None:
            settings, options = load_settings(), _template_options(template_option)
            body = request_body(kind, values_of(flags, given))
            prompt = JobPrompt(kind.name, settings.tenant, body, options, settings.kv_budget_of(kind.name))
            _run(settings, prompt, seed, attempts, model, as_json)

        help_text = (
            f"Write one {kind.name}, past the queue, and judge it as a worker does. Nothing is recorded.\n\n"
            f"Example: thothy ask {kind.name} {example_options(kind, flags)} --attempts 3"
        )
        return single_command(kind.name, help_text, with_flags(run, flags))


app = typer.Typer(cls=AskCommands, name="ask", invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def ask(
    ctx: typer.Context,
    prompt: Annotated[str | None, typer.Option(metavar="TEXT", help="A plain prompt; - reads standard input.")] = None,
    prompt_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="File to read the prompt from; - reads standard input.")
    ] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System message before the prompt.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum number of output tokens.")] = 256,
    temperature: Annotated[float, typer.Option(min=0, max=100, help="Sampling temperature; 0 is greedy.")] = 0.7,
    n: Annotated[int, typer.Option(min=1, max=MAX_CHOICES, help="Number of texts, drawn independently.")] = 1,
    logprobs: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_LOGPROBS,
            help="Show the mean log-probability, and with --json those of this number of tokens.",
        ),
    ] = None,
    seed: Seed = None,
    model: Model = None,
    template_option: TemplateOptions = None,
    as_json: AsJson = False,
) -> None:
    """Send one request to the engine, past the queue: a job's, or a plain prompt. Nothing is recorded.

    The running engine answers, ahead of all jobs. If none is configured, one is started for the request, with
    THOTHY_MODEL or the bundled model. The text goes to standard output as it is generated; the validators' verdict,
    tokens and seconds go to standard error. Exit with 1 if the output is rejected.

    Example: thothy ask trend_summary --source-file notes.txt --attempts 3

    Example: thothy ask --prompt "Write a haiku about a queue." --max-tokens 40 --n 3
    """
    if (kind := ctx.invoked_subcommand) is not None:  # options before the kind belong to a plain prompt
        for name in ctx.params:
            source = ctx.get_parameter_source(name)
            if source is not None and source.name == "COMMANDLINE":
                option = "--json" if name == "as_json" else f"--{name.replace('_', '-')}"
                usage(f"{option} cannot precede the kind; options of a job follow it: thothy ask {kind} --help")
        return None
    from thothy_ai.cli.inputs.kind_flags import read_text
    from thothy_ai.evaluation.ask import ChatPrompt

    if prompt is not None and prompt_file is not None:
        usage("--prompt and --prompt-file are mutually exclusive")
    file = "-" if prompt == "-" else prompt_file
    text = read_text(file) if file is not None else prompt
    if text is None:
        typer.echo(ctx.get_help(), err=True)
        raise typer.Exit(WRONG_INPUT)
    if not text.strip():
        usage("the prompt is empty")
    chat = ChatPrompt(text, system, max_tokens, temperature, n, logprobs, _template_options(template_option))
    return _run(load_settings(), chat, seed, 1, model, as_json)


def _template_options(given: list[str] | None) -> dict[str, TemplateOption]:
    """Template options from NAME=VALUE. A value is JSON if it can be read as such, otherwise text."""
    from thothy_ai.engine.api.errors import InvalidRequestError
    from thothy_ai.engine.api.template_options import check_template_options

    options: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            usage(f"--template-option: {text!r} is not NAME=VALUE")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    try:
        check_template_options(options)
    except InvalidRequestError as error:
        usage(f"--template-option: {error}")
    return options


def _run(
    settings: Settings, prompt: Prompt, seed: int | None, attempts: int, model: Path | None, as_json: bool
) -> None:
    """Ask, show and exit: 0 for an accepted output, 1 for any other, 130 after Ctrl-C."""
    from thothy_ai.cli.request_engine import engine_for
    from thothy_ai.cli.views.ask import AskView
    from thothy_ai.engine.api.errors import GrammarError, InvalidRequestError, PromptTooLongError

    first = secrets.randbits(SEED_BITS) if seed is None else seed
    view = AskView(prompt.kind, attempts, as_json=as_json)
    try:
        with engine_for(settings, model) as endpoint:
            accepted = asyncio.run(_ask(endpoint, prompt, range(first, first + attempts), view))
    except KeyboardInterrupt:
        typer.echo("Interrupted; the request is aborted.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except (PromptTooLongError, InvalidRequestError, GrammarError) as error:
        fail(error, WRONG_INPUT)
    view.close()
    if not accepted:
        raise typer.Exit(FAILED)


async def _ask(endpoint: Endpoint, prompt: Prompt, seeds: Iterable[int], view: AskView) -> bool:
    """Try as a worker does, with the next seed as long as outputs are rejected for a reason that allows a retry."""
    from thothy_ai.evaluation.connection import connected
    from thothy_ai.plans.context import context_of

    attempt: AskAttempt | None = None
    async with connected(endpoint) as (client, info), view.showing():
        for seed in seeds:
            view.begin(info, seed)
            previous = attempt.judgement.previous if attempt is not None and attempt.judgement is not None else None
            attempt = await prompt.attempt(client, seed, context_of(info, previous), view)
            view.attempt(attempt)
            if not attempt.retryable:
                break
    return attempt is not None and attempt.accepted
