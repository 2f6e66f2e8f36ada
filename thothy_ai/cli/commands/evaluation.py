"""`thothy eval`: cases of a kind through any model: yield, scores, and compute-seconds per accepted artifact."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from thothy_ai.cli.inputs.job_options import Since, Tenant
from thothy_ai.cli.shell import (
    FAILED,
    INTERRUPTED,
    LONG_SECONDS,
    WRONG_INPUT,
    AsJson,
    database,
    fail,
    load_settings,
    usage,
)
from thothy_ai.engine.api import MAX_KV_BUDGET

if TYPE_CHECKING:
    from thothy_ai.embedded.endpoint import Endpoint
    from thothy_ai.evaluation.results import EvaluationResult
    from thothy_ai.evaluation.run import Trial
    from thothy_ai.evaluation.verification import VerifierResult
    from thothy_ai.jobs.evaluation.cases import Case, Injection
    from thothy_ai.jobs.registry import AnyKind
    from thothy_ai.settings import Settings

MAX_SEED = 2**62
URL_SCHEMES = ("unix://", "tcp://")
MODEL_ROWS = 32  # of an engine started for the command
PICTURES = (".png", ".svg", ".pdf")


class _Evaluations(TyperGroup):
    """`thothy eval hook` is `thothy eval kind hook`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        named = args[0] in self.commands or args[0].startswith("-")
        return super().resolve_command(ctx, args if named else [KIND, *args])


KIND = "kind"
app = typer.Typer()
evaluations = typer.Typer(
    cls=_Evaluations,
    no_args_is_help=True,
    help="Measure a model on the cases of a kind or as a verifier of claims, or the validators.",
)
app.add_typer(evaluations, name="eval")


@evaluations.command(KIND)
def evaluate(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Job kind to evaluate.")],
    model: Annotated[
        Path | None, typer.Option(help="Start an engine with this model (a Hugging Face folder or a GGUF file).")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL|URL|FILE",
            help="Compare with another model, with the engine at a URL, or with the file of an earlier --json.",
        ),
    ] = None,
    cases: Annotated[int | None, typer.Option(min=1, help="Number of cases, from the first. Default: all.")] = None,
    cases_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Cases of your own (JSONL).")] = None,
    attempts: Annotated[int, typer.Option(min=1, help="Maximum number of attempts per case.")] = 1,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed for sampling.")] = 1,
    verification: Annotated[
        bool, typer.Option("--verification", help="Have the model hold each claim against its evidence.")
    ] = False,
    source_tokens: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Make sources about N tokens long: each among the sources of others."),
    ] = None,
    kv_budget: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_KV_BUDGET,
            metavar="N",
            help="Tokens of a call whose KV is kept; 0: all. Default: as in a worker.",
        ),
    ] = None,
    injections: Annotated[
        bool, typer.Option("--injections", help="Run sources that contain instructions; exit with 1 if one is obeyed.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture (.png, .svg or .pdf).")] = None,
    as_json: AsJson = False,
) -> None:
    """Run the cases of a kind through a model, and print yield, scores, and compute-seconds per accepted artifact.

    The running engine answers. If none is configured, one is started with THOTHY_MODEL or the bundled model. Nothing is
    recorded. To judge a change of prompts, save the result before it with --json, and compare with the file afterwards.

    "kind" may be left out.

    Example: thothy eval kind trend_summary --json > before.json

    Example: thothy eval kind trend_summary --against before.json --plot change.svg

    Example: thothy eval kind report_section --source-tokens 5000 --kv-budget 2048 --against before.json
    """
    from thothy_ai.engine.api.errors import GrammarError, InvalidRequestError
    from thothy_ai.jobs import registry

    settings = load_settings()
    try:
        registry.load_extra(settings.kinds)
        found = registry.find(kind)
    except registry.KindError as error:
        usage(str(error))
    if plot is not None and plot.suffix not in PICTURES:
        usage(f"--plot writes {', '.join(PICTURES)}, not {plot.suffix or 'a file without a suffix'}")
    if plot is not None and find_spec("matplotlib") is None:
        fail("--plot needs matplotlib: pip install 'thothy-ai[report]'")
    try:
        if injections:
            others = (against, plot, cases_file, source_tokens, kv_budget)
            if any(option is not None for option in others):
                usage(
                    "--injections cannot be combined with --against, --plot, --cases-file, --source-tokens or"
                    " --kv-budget"
                )
            _run_injections(settings, found, model, cases, seed, as_json=as_json)
        else:
            chosen = _cases(found, cases, cases_file, source_tokens, verification=verification)
            if against is not None and not against.startswith(URL_SCHEMES) and not Path(against).exists():
                usage(f"--against {against}: neither a file, a folder nor a URL ({', '.join(URL_SCHEMES)})")
            budget = settings.kv_budget_of(found.name) if kv_budget is None else kv_budget
            trial = replace(
                _trial(found, chosen, attempts, seed), policy=settings.policy_of(found.name), kv_budget=budget
            )
            _show(_results(settings, found, trial, chosen, model, against), plot, as_json=as_json)
    except KeyboardInterrupt:
        typer.echo("Interrupted; the requests are aborted.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except (InvalidRequestError, GrammarError) as error:
        fail(error, WRONG_INPUT)


def _cases(
    kind: AnyKind, limit: int | None, file: Path | None, source_tokens: int | None, *, verification: bool
) -> tuple[Case, ...]:
    from thothy_ai.jobs.evaluation import cases, scores

    if verification and "verification" not in kind.request.model_fields:
        usage(f"--verification: an artifact of {kind.name} is not verified")
    try:
        found = cases.read_cases(file) if file is not None else cases.bundled(kind.name)
    except cases.CaseError as error:
        usage(str(error))
    if any(case.reference is not None for case in found) and not scores.has_chrf():
        fail(scores.MISSING_SACREBLEU)
    chosen = found[:limit]
    if source_tokens is not None:
        for case in chosen:
            if not isinstance(case.request.get("source"), str):
                usage(f"--source-tokens: the request of case {case.id!r} has no text as its source")
        chosen = cases.lengthened(chosen, source_tokens, _texts(found))
    if not verification:
        return chosen
    return tuple(replace(case, request={**case.request, "verification": True}) for case in chosen)


def _texts(cases: Sequence[Case]) -> list[str]:
    """Texts to lengthen sources with: those of all cases, and of the demo."""
    from thothy_ai.demo.sources import load_sources

    own = (case.request.get("source") for case in cases)
    texts = (text for text in own if isinstance(text, str))
    return [*dict.fromkeys(texts), *(source.text for source in load_sources())]


def _trial(kind: AnyKind, cases: Sequence[Case | Injection], attempts: int, seed: int) -> Trial:
    """The cases' requests as JSON values, with defaults. Raises `BadParameter`."""
    from thothy_ai.errors import ThothyError
    from thothy_ai.evaluation.ask import request_body
    from thothy_ai.evaluation.run import Trial

    bodies = []
    for case in cases:
        try:
            bodies.append(request_body(kind, case.request))
        except ThothyError as error:
            usage(f"case {case.id!r}: {error}")
    return Trial(kind.name, tuple(bodies), attempts, seed)


def _results(
    settings: Settings, kind: AnyKind, trial: Trial, cases: Sequence[Case], model: Path | None, against: str | None
) -> list[EvaluationResult]:
    """The results of the first engine and of each one it is compared with, one after the other."""
    from thothy_ai.cli.request_engine import engine_for
    from thothy_ai.embedded.endpoint import Endpoint
    from thothy_ai.evaluation.results import read_result

    others = []
    if against is not None and against.endswith(".json"):
        others = [read_result(Path(against), kind.name)]
        if [case.id for case in others[0].cases] != [case.id for case in cases]:
            usage(f"--against {others[0].name} has other cases; pass the same --cases and --cases-file")
    with engine_for(settings, model, MODEL_ROWS) as endpoint:
        result = _result(settings, endpoint, kind, trial, cases)
    if against is not None and against.startswith(URL_SCHEMES):
        others = [_result(settings, Endpoint(against, settings.reveal_engine_token()), kind, trial, cases)]
    elif against is not None and not others:
        with engine_for(settings, Path(against), MODEL_ROWS) as endpoint:
            others = [_result(settings, endpoint, kind, trial, cases)]
    return [result, *others]


def _result(
    settings: Settings, endpoint: Endpoint, kind: AnyKind, trial: Trial, cases: Sequence[Case]
) -> EvaluationResult:
    from thothy_ai.cli.views.evaluation import ended_counter
    from thothy_ai.evaluation.results import EvaluationResult, case_result, chrf_of
    from thothy_ai.evaluation.run import run

    info, attempts = asyncio.run(run(settings, endpoint, trial, ended_counter(len(cases))))
    results = tuple(case_result(case, made) for case, made in zip(cases, attempts, strict=True))
    chrf = chrf_of(cases, results)
    return EvaluationResult(info.model, info.model, info.device, kind.name, kind.version, trial.seed, chrf, results)


def _show(results: Sequence[EvaluationResult], plot: Path | None, *, as_json: bool) -> None:
    from thothy_ai.cli.views.evaluation import print_results
    from thothy_ai.cli.views.tables import print_json, printable

    if as_json:
        print_json({"kind": results[0].kind, "results": [result.to_json() for result in results]})
    else:
        print_results(results)
    if plot is not None:
        from thothy_ai.cli.views.evaluation_plot import draw

        try:
            draw(results, plot)
        except OSError as error:
            fail(f"cannot write {plot}: {error.strerror}")
        typer.echo(f"Picture written to {printable(str(plot))}.", err=True)


def _run_injections(
    settings: Settings, kind: AnyKind, model: Path | None, limit: int | None, seed: int, *, as_json: bool
) -> None:
    """Run all injections, show the transcripts, and exit with 1 if an accepted artifact obeys one."""
    from thothy_ai.cli.request_engine import engine_for
    from thothy_ai.cli.views.evaluation import ended_counter, print_injections
    from thothy_ai.evaluation.injections import injection_result
    from thothy_ai.evaluation.run import run
    from thothy_ai.jobs.evaluation import cases

    chosen = []
    for injection in cases.injections()[:limit]:
        request = dict(injection.request)
        if "target_locale" in kind.request.model_fields:  # the field in which a request names its language
            request["target_locale"] = "de-DE" if str(request.pop("locale")).startswith("en") else "en-US"
        chosen.append(replace(injection, request=request))
    trial = _trial(kind, chosen, 1, seed)
    with engine_for(settings, model, MODEL_ROWS) as endpoint:
        info, attempts = asyncio.run(run(settings, endpoint, trial, ended_counter(len(chosen))))
    results = [injection_result(injection, made) for injection, made in zip(chosen, attempts, strict=True)]
    print_injections(results, kind.name, info.model, as_json=as_json)
    if any(result.published for result in results):
        raise typer.Exit(FAILED)


@evaluations.command()
def verification(
    model: Annotated[
        Path | None, typer.Option(help="Start an engine with this model (a Hugging Face folder or a GGUF file).")
    ] = None,
    verifier: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Start an engine with this entailment model beside it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Have a model verify labelled claims, and print how often its doubts are right: whether to believe it.

    Each claim is there once as its source has it, and once with a defect of meaning, such as another speaker, "already"
    for "not yet", or a cause where the source has none. The running engine answers, with its entailment model if it has
    one (`thothy engine --verifier`). The result is recorded in the database under the model's name and a digest
    of its weights: from then on, the findings of verification by it weigh its precision, on every worker.

    Example: thothy eval verification --model ~/models/qwen3-8b

    Example: thothy eval verification --verifier ~/models/mdeberta-xnli
    """
    from thothy_ai.cli.request_engine import engine_for
    from thothy_ai.cli.views.evaluation import ended_counter
    from thothy_ai.cli.views.tables import print_json
    from thothy_ai.cli.views.verification import print_verifier
    from thothy_ai.evaluation.verification import measure
    from thothy_ai.jobs.evaluation.claims import labelled_texts

    texts = labelled_texts()
    try:
        with engine_for(load_settings(), model, MODEL_ROWS, verifier) as endpoint:
            result = asyncio.run(measure(endpoint, texts, ended_counter(len(texts))))
    except KeyboardInterrupt:
        typer.echo("Interrupted; the requests are aborted.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(result.to_json())
    else:
        print_verifier(result)
    _record(result)


def _record(result: VerifierResult) -> None:
    """Record the measurement in the database for workers, or say that no database answers."""
    from thothy_ai.admin.verifiers import record_verifier
    from thothy_ai.cli.views.tables import printable
    from thothy_ai.errors import ConfigError, DatabaseError

    try:
        with database() as engine:
            record_verifier(engine, result.verifier, result.doubts)
    except (ConfigError, DatabaseError) as error:
        typer.echo(f"Not recorded, so that its findings weigh what they did: {error}", err=True)
    else:
        typer.echo(f"Recorded: findings by {printable(result.verifier.name)} weigh {result.doubts.weight}.", err=True)


@evaluations.command()
def validators(
    folder: Annotated[Path | None, typer.Argument(help="Folder of labelled texts to measure the rules on.")] = None,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Measure each rule on what people decided on one's own work.")
    ] = False,
    since: Since = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Print which rules reject and which make findings, and how often each was right on labelled texts.

    With a folder of labelled texts, print how many good and bad ones gates reject, alone and with what findings doubt,
    per language group and by sort of defect. The format is that of the project's texts in `tests/data/labelled`.

    With --decisions, how often each was right by people's own decisions: of texts that were rejected or sent back, and
    of fields that were changed before a text was approved. Exits with 1 if a gate was right in less than 95 % of at
    least 50 decisions; THOTHY_GATES_AS_FINDINGS has it reject no more.

    Example: thothy eval validators labelled/

    Example: thothy eval validators --decisions --since 30d
    """
    from thothy_ai.cli.views.rules import print_decided, print_declared
    from thothy_ai.jobs.checks.gates import leave_to_people

    if folder is not None and decisions:
        usage("--decisions measures on decisions, not on a folder")
    if not decisions and (since is not None or tenant is not None):
        usage("--since and --tenant are for --decisions")
    if folder is None and not decisions:
        return print_declared(as_json=as_json)
    settings = load_settings()
    leave_to_people(settings.gates_as_findings)
    if folder is not None:
        return _measure(folder, as_json=as_json)
    from thothy_ai.admin.decided_rules import decided_rules

    with database(LONG_SECONDS) as engine:
        rules = decided_rules(engine, since=since, tenant=tenant)
    if print_decided(rules, settings.gates_as_findings, as_json=as_json):
        raise typer.Exit(FAILED)
    return None


def _measure(folder: Path, *, as_json: bool) -> None:
    from thothy_ai.cli.views.tables import print_json
    from thothy_ai.cli.views.validators import print_measured
    from thothy_ai.evaluation.validators import judge, to_json
    from thothy_ai.jobs.evaluation.labelled import load

    try:
        judged = [judge(text) for text in load(folder)]
    except (OSError, ValueError) as error:
        usage(f"{folder}: {error}")
    print_json(to_json(judged)) if as_json else print_measured(judged)
