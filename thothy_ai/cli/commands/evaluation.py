"""`thothy eval`: cases of a kind through any model: yield, scores, and compute-seconds per accepted artifact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.shell import FAILED, INTERRUPTED, WRONG_INPUT, AsJson, fail, load_settings, usage

if TYPE_CHECKING:
    from thothy_ai.embedded.endpoint import Endpoint
    from thothy_ai.evaluation.results import Result
    from thothy_ai.evaluation.run import Body, Trial
    from thothy_ai.jobs.evaluation.cases import Case, Injection
    from thothy_ai.jobs.registry import AnyKind
    from thothy_ai.settings import Settings

MAX_SEED = 2**62
URL_SCHEMES = ("unix://", "tcp://")
MODEL_ROWS = 32  # of an engine that is started for it
PICTURES = (".png", ".svg", ".pdf")

app = typer.Typer()


@app.command("eval")
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
    review: Annotated[
        bool, typer.Option("--review", help="Have the model check its statements against the source.")
    ] = False,
    injections: Annotated[
        bool, typer.Option("--injections", help="Run sources that contain instructions; exit with 1 if one is obeyed.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture (.png, .svg or .pdf).")] = None,
    as_json: AsJson = False,
) -> None:
    """Run the cases of a kind through a model, and print yield, scores, and compute-seconds per accepted artifact.

    The running engine answers. If none is configured, one is started with THOTHY_MODEL or the bundled model. Nothing is
    recorded. To judge a change of prompts, save the result before it with --json, and compare with the file afterwards.

    Example: thothy eval trend_summary --json > before.json

    Example: thothy eval trend_summary --against before.json --plot change.svg
    """
    settings = load_settings()
    found = _find(settings, kind)
    _check_plot(plot)
    with _aborting():
        if injections:
            if against is not None or plot is not None or cases_file is not None:
                usage("--injections cannot be combined with --against, --plot or --cases-file")
            _run_injections(settings, found, model, cases, seed, as_json=as_json)
        else:
            chosen = _cases(found, cases, cases_file, review=review)
            _check_against(against)
            trial = _trial(settings, found, chosen, attempts, seed)
            _show(_results(settings, found, trial, chosen, model, against), plot, as_json=as_json)


@contextmanager
def _aborting() -> Iterator[None]:
    """Exit with 130 after Ctrl-C, and with 2 if the engine refuses a request."""
    from thothy_ai.engine.api.errors import GrammarError, InvalidRequestError

    try:
        yield
    except KeyboardInterrupt:
        typer.echo("Interrupted; the requests are aborted.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except (InvalidRequestError, GrammarError) as error:
        fail(error, WRONG_INPUT)


def _check_against(against: str | None) -> None:
    """Raise `BadParameter` for a file, folder or URL that cannot be compared with, before anything runs."""
    if against is None or against.startswith(URL_SCHEMES):
        return
    if not Path(against).exists():
        usage(f"--against {against}: neither a file, a folder nor a URL ({', '.join(URL_SCHEMES)})")


def _check_plot(plot: Path | None) -> None:
    if plot is not None and plot.suffix not in PICTURES:
        usage(f"--plot writes {', '.join(PICTURES)}, not {plot.suffix or 'a file without a suffix'}")
    if plot is not None and find_spec("matplotlib") is None:
        fail("--plot needs matplotlib: pip install 'thothy-ai[report]'")


def _find(settings: Settings, name: str) -> AnyKind:
    from thothy_ai.jobs import registry

    try:
        registry.load_extra(settings.kinds)
        return registry.find(name)
    except registry.KindError as error:
        usage(str(error))


def _cases(kind: AnyKind, most: int | None, file: Path | None, *, review: bool) -> tuple[Case, ...]:
    from thothy_ai.jobs.evaluation import cases, scores

    if review and "review" not in kind.request.model_fields:
        usage(f"--review: a {kind.name} has no review")
    try:
        found = cases.read_cases(file) if file is not None else cases.bundled(kind.name)
    except cases.CaseError as error:
        usage(str(error))
    if any(case.reference is not None for case in found) and not scores.has_chrf():
        fail(scores.MISSING_SACREBLEU)
    return tuple(map(_reviewed, found[:most])) if review else found[:most]


def _reviewed(case: Case) -> Case:
    return replace(case, request={**case.request, "review": "record"})


def _trial(settings: Settings, kind: AnyKind, cases: Sequence[Case | Injection], attempts: int, seed: int) -> Trial:
    from thothy_ai.evaluation.run import Trial

    return Trial(kind.name, tuple(_body(settings, kind, case) for case in cases), attempts, seed)


def _body(settings: Settings, kind: AnyKind, case: Case | Injection) -> Body:
    """The request as JSON values, with its defaults. Raises `BadParameter`."""
    from thothy_ai.cli.commands.ask_questions import JobQuestion
    from thothy_ai.errors import ThothyError

    try:
        body: Body = JobQuestion.of(kind, case.request, settings).body
    except ThothyError as error:
        usage(f"case {case.id!r}: {error}")
    return body


def _results(
    settings: Settings, kind: AnyKind, trial: Trial, cases: Sequence[Case], model: Path | None, against: str | None
) -> list[Result]:
    """Of the first engine, and of what it is compared with, one after the other."""
    from thothy_ai.cli.commands.ask_engine import engine_for
    from thothy_ai.evaluation.results import read_result

    earlier = Path(against) if against is not None and against.endswith(".json") else None
    others = [_comparable(read_result(earlier, kind.name), cases)] if earlier is not None else []
    with engine_for(settings, model, MODEL_ROWS) as endpoint:
        result = _result(settings, endpoint, kind, trial, cases)
    if against is not None and earlier is None:
        with _other_engine(settings, against) as endpoint:
            others.append(_result(settings, endpoint, kind, trial, cases))
    return [result, *others]


def _comparable(result: Result, cases: Sequence[Case]) -> Result:
    if [case.id for case in result.cases] != [case.id for case in cases]:
        usage(f"--against {result.name} has other cases; pass the same --cases and --cases-file")
    return result


@contextmanager
def _other_engine(settings: Settings, against: str) -> Iterator[Endpoint]:
    from thothy_ai.cli.commands.ask_engine import engine_for
    from thothy_ai.embedded.endpoint import Endpoint

    if against.startswith(URL_SCHEMES):
        yield Endpoint(against, settings.reveal_engine_token())
        return
    with engine_for(settings, Path(against), MODEL_ROWS) as endpoint:
        yield endpoint


def _result(settings: Settings, endpoint: Endpoint, kind: AnyKind, trial: Trial, cases: Sequence[Case]) -> Result:
    from thothy_ai.evaluation.results import Result, case_result, chrf_of
    from thothy_ai.evaluation.run import run

    info, attempts = run(settings, endpoint, trial)
    results = tuple(case_result(case, made) for case, made in zip(cases, attempts, strict=True))
    chrf = chrf_of(cases, results)
    return Result(info.model, info.model, info.device, kind.name, kind.version, trial.seed, chrf, results)


def _show(results: Sequence[Result], plot: Path | None, *, as_json: bool) -> None:
    from thothy_ai.cli.views.evaluation import print_results
    from thothy_ai.cli.views.tables import print_json

    if as_json:
        print_json({"kind": results[0].kind, "results": [result.to_json() for result in results]})
    else:
        print_results(results)
    if plot is not None:
        _draw(results, plot)


def _draw(results: Sequence[Result], plot: Path) -> None:
    from thothy_ai.cli.views.evaluation_plot import draw
    from thothy_ai.cli.views.tables import printable

    try:
        draw(results, plot)
    except OSError as error:
        fail(f"cannot write {plot}: {error.strerror}")
    typer.echo(f"Picture written to {printable(str(plot))}.", err=True)


def _for_kind(kind: AnyKind, injection: Injection) -> Injection:
    """The same source for a kind whose requests name the language they want in another field."""
    if "target_locale" not in kind.request.model_fields:
        return injection
    others = {name: value for name, value in injection.request.items() if name != "locale"}
    return replace(injection, request={**others, "target_locale": _target(str(injection.request["locale"]))})


def _target(locale: str) -> str:
    return "de-DE" if locale.startswith("en") else "en-US"


def _run_injections(
    settings: Settings, kind: AnyKind, model: Path | None, most: int | None, seed: int, *, as_json: bool
) -> None:
    """Run all injections, show the transcripts, and exit with 1 if an accepted artifact obeys one."""
    from thothy_ai.cli.commands.ask_engine import engine_for
    from thothy_ai.evaluation.injections import injection_result, show
    from thothy_ai.evaluation.run import run
    from thothy_ai.jobs.evaluation import cases

    chosen = [_for_kind(kind, injection) for injection in cases.injections()[:most]]
    trial = _trial(settings, kind, chosen, 1, seed)
    with engine_for(settings, model, MODEL_ROWS) as endpoint:
        info, attempts = run(settings, endpoint, trial)
    results = [injection_result(injection, made) for injection, made in zip(chosen, attempts, strict=True)]
    show(results, kind.name, info.model, as_json=as_json)
    if any(result.published for result in results):
        raise typer.Exit(FAILED)
