"""What policies make of the same cases: yields, and the seconds that ended in nothing, with a model on this machine.

    python -m benchmarks.yields [--model FOLDER|FILE] [--kinds hook,translation] [--cases 10] [--seed 1]

Under `strict`, each finding rejects, and the drafts of a job that runs out of attempts are lost: so it was before there
were findings. Under `publish`, gates alone reject, and drafts are lost. Under `review`, gates alone reject, and the
best draft is kept for a person to edit. The last two ask the model the same, so that they are one run. Each run has an
engine of its own, whose prefix cache is empty; cases have the same seeds in all. What a job with one attempt would have
left is read from the first attempts of those with three.

Seconds depend on the machine and on what else it does; tokens that were computed hardly do, only by what was cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.command_line import CommandLine, positive
from benchmarks.results import Table, record, table
from thothy_ai.embedded.engine import temporary_engine
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.evaluation.ask import request_body
from thothy_ai.evaluation.results import EvaluationResult, case_result
from thothy_ai.evaluation.run import CaseAttempt, Trial, run
from thothy_ai.jobs import registry
from thothy_ai.jobs.api.kind import Policy
from thothy_ai.jobs.evaluation.cases import Case, bundled
from thothy_ai.settings import Settings

KINDS = "hook", "translation", "trend_summary", "report_section"
ATTEMPTS = 3, 1  # the queue's default, and the demo's
POLICIES = {Policy.STRICT: Policy.STRICT, Policy.PUBLISH: Policy.REVIEW, Policy.REVIEW: Policy.REVIEW}  # run under
ROWS = 32  # of the engine
TARGET = 0.25  # of the seconds may end in nothing

Runs = Mapping[str, tuple[Sequence[Case], Sequence[Sequence[CaseAttempt]]]]


def attempted(settings: Settings, model: Path, kinds: Sequence[str], cases: int, seed: int, policy: Policy) -> Runs:
    """The attempts at the cases of each kind under a policy, on an engine that is started for them."""
    made = {}
    with temporary_engine(settings, model, ROWS) as endpoint:
        for name in kinds:
            kind, chosen = registry.find(name), bundled(name)[:cases]
            bodies = tuple(request_body(kind, case.request) for case in chosen)
            trial = Trial(name, bodies, max(ATTEMPTS), seed, policy)
            _, attempts = asyncio.run(run(settings, endpoint, trial, lambda: None))
            made[name] = chosen, attempts
            print(f"{policy}, {name}: {sum(map(len, attempts))} attempts at {len(chosen)} cases", flush=True)
    return made


def judged(made: Runs, policy: Policy, attempts: int) -> dict[str, EvaluationResult]:
    """What jobs with so many attempts would have left under a policy, by kind; and all together."""

    def under(attempt: CaseAttempt) -> CaseAttempt:
        return replace(attempt, judgement=replace(attempt.judgement, policy=policy))

    found = {
        kind: tuple(case_result(case, [*map(under, each[:attempts])]) for case, each in zip(cases, tried, strict=True))
        for kind, (cases, tried) in made.items()
    }
    found["all"] = tuple(case for cases in found.values() for case in cases)
    return {kind: EvaluationResult(policy, "", "", kind, "", 0, None, cases) for kind, cases in found.items()}


FIGURES: Mapping[str, Callable[[EvaluationResult], str]] = {
    "form yield": lambda of: f"{of.form_yield:.0%}",
    "clean yield": lambda of: f"{of.clean_yield:.0%}",
    "drafts to edit": lambda of: f"{of.to_edit}",
    "seconds": lambda of: f"{of.compute_seconds:.1f}",
    "of them in nothing": lambda of: f"{of.wasted or 0:.1%}",
    "tokens": lambda of: f"{sum(case.computed_tokens for case in of.cases):,}",
    "of these in nothing": lambda of: f"{of.wasted_tokens or 0:.1%}",
}


def main() -> None:
    """Print and record the figures."""
    parser = CommandLine("yields", __doc__)
    parser.add_argument("--model", type=Path, help="Hugging Face folder or GGUF file. Default: the bundled model.")
    parser.add_argument("--kinds", type=lambda names: names.split(","), default=KINDS, help="separated by commas")
    parser.add_argument("--cases", type=positive(int), default=10, help="of each kind")
    parser.add_argument("--seed", type=positive(int), default=1)
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"no cases of {', '.join(sorted(unknown))}: choose from {', '.join(KINDS)}")
    path = options.model or bundled_model_path()
    if not path.exists():
        parser.error(f"{path}: no such file or folder")
    settings = Settings.load()
    runs = {
        policy: attempted(settings, path, options.kinds, options.cases, options.seed, policy)
        for policy in dict.fromkeys(POLICIES.values())
    }
    results = {
        (allowed, policy): judged(runs[under], policy, allowed)
        for allowed in ATTEMPTS
        for policy, under in POLICIES.items()
    }
    header = ("attempts", "policy", "kind", *FIGURES)
    rows = [
        (f"{allowed}", str(policy), kind, *(show(of) for show in FIGURES.values()))
        for (allowed, policy), kinds in results.items()
        for kind, of in kinds.items()
    ]
    print(table(header, rows))
    figures = []
    for allowed in ATTEMPTS:
        each = [results[allowed, policy]["all"] for policy in POLICIES]
        tries = f"{allowed} attempts" if allowed > 1 else "one attempt"
        figures += [
            (f"{tries}: form yield under {'; '.join(POLICIES)}", "; ".join(f"{of.form_yield:.0%}" for of in each), ""),
            ("clean yield", "; ".join(f"{of.clean_yield:.0%}" for of in each), ""),
            ("seconds in nothing", "; ".join(f"{of.wasted or 0:.1%}" for of in each), f"{TARGET:.0%} under review"),
        ]
    record(
        f"Yields and waste by policy, {path.stem}",
        "Accuracy",
        f"python -m benchmarks.yields --cases {options.cases} --seed {options.seed}",
        figures,
        tables=[Table(f"{options.cases} cases of each kind", header, rows)],
    )


if __name__ == "__main__":
    main()
