"""`thothy eval`: cases through a served engine, results side by side, injections; and once the bundled model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text
from typer.testing import CliRunner, Result

from tests.support.answering_backend import AnsweringBackend
from tests.support.entailment import entailment_folder
from tests.support.home import fresh_home, processes_of
from tests.support.served_engine import served
from tests.support.verifying import claims_of_prompt
from thothy_ai.cli import app
from thothy_ai.engine.api.errors import GrammarError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.checkpoint.fingerprint import fingerprint
from thothy_ai.engine.entailment.backend import VerifyingEngine
from thothy_ai.engine.entailment.verifier import Verifier
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.wire.verifier_messages import LoadVerifier
from thothy_ai.jobs.evaluation.claims import labelled_texts

Evaluate = Callable[..., Result]
TEXTS = ("ok one", "retry two", "ok three")


@pytest.fixture
def backend() -> AnsweringBackend:
    return AnsweringBackend(lambda request: [json.dumps({"echo": request.messages[-1].content[:90]})])


@pytest.fixture
def env(backend: AnsweringBackend, tmp_path: Path, clean_environment: None) -> Iterator[dict[str, str]]:
    url = f"unix://{tmp_path}/e.sock"
    with served(backend, url):
        own = {"THOTHY_ENGINE_URL": url, "THOTHY_HOME": str(tmp_path), "THOTHY_KINDS": "tests.support.echo_kind"}
        yield own | {"THOTHY_JUDGES": "1"}


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    path = tmp_path / "cases.jsonl"
    entries = [{"id": text, "request": {"text": text}, "facts": [[text.split()[1]], ["gold"]]} for text in TEXTS]
    path.write_text("\n".join(map(json.dumps, entries)), encoding="utf-8")
    return path


@pytest.fixture
def evaluate(env: dict[str, str]) -> Evaluate:
    def run(*arguments: object, exit_code: int = 0) -> Result:
        done = CliRunner().invoke(app, ["eval", *map(str, arguments)], env=env)
        assert done.exit_code == exit_code, done.output
        assert "Traceback" not in done.output
        return done

    return run


def rows(done: Result) -> dict[str, list[str]]:
    """The table's cells, without its title and its heads."""
    lines = done.stdout.splitlines()[3:]
    cells = [[cell for cell in line.strip().split("  ") if cell] for line in lines]
    return {name.strip(): [value.strip() for value in values] for name, *values in filter(None, cells)}


def test_yield_scores_and_seconds_per_accepted_artifact(evaluate: Evaluate, cases: Path) -> None:
    table = rows(evaluate("echo", "--cases-file", cases))
    assert table["accepted"] == ["2 of 3"]
    assert table["form yield"] == ["67%"]
    assert table["coverage of facts"] == ["0.50"]
    assert table["compute-seconds"] == ["4.50"]
    assert table["per accepted artifact"] == ["2.25"]
    assert table["rejected: repetition"] == ["1"]
    assert table["wasted, of the seconds"] == ["33.3%"]
    assert table["wasted, of the tokens computed"] == ["33.3%"]
    assert table["tokens saved by early stops"] == ["0"]
    assert not {"chrF", "verification's share of tokens"} & set(table)


def test_cases_seeds_and_attempts_are_as_asked_for(evaluate: Evaluate, cases: Path, backend: AnsweringBackend) -> None:
    document = json.loads(
        evaluate("echo", "--cases-file", cases, "--cases", 2, "--seed", 5, "--attempts", 3, "--json").stdout
    )
    [result] = document["results"]
    assert [(case["id"], case["attempts"]) for case in result["cases"]] == [("ok one", 1), ("retry two", 3)]
    assert sorted(request.sampling.seed or 0 for request in backend.requests) == [5, 5, 6, 7]
    assert {request.priority for request in backend.requests} == {0}
    assert (result["compute_seconds"], result["compute_seconds_per_accepted"]) == (6.0, 6.0)
    assert (result["wasted"], result["wasted_of_tokens"], result["verification_share_of_tokens"]) == (0.75, 0.75, None)
    assert (result["model"], result["kind"], result["prompts"], result["seed"]) == ("answering", "echo", "1", 5)


def test_an_earlier_result_is_compared_case_by_case(
    evaluate: Evaluate, cases: Path, backend: AnsweringBackend, tmp_path: Path
) -> None:
    before = tmp_path / "before.json"
    before.write_text(evaluate("echo", "--cases-file", cases, "--json").stdout, encoding="utf-8")
    backend.answer = lambda request: [json.dumps({"echo": request.messages[-1].content.replace("retry", "ok")})]
    picture = tmp_path / "change.svg"
    table = rows(evaluate("echo", "--cases-file", cases, "--against", before, "--plot", picture))
    assert table["accepted"] == ["3 of 3", "2 of 3"]
    assert table["accepted here only"] == ["1", "0"]
    assert table["rejected: repetition"] == ["0", "1"]
    assert picture.read_text(encoding="utf-8").count("<svg") == 1
    evaluate("echo", "--cases-file", cases, "--cases", 2, "--against", before, exit_code=2)
    before.write_text("{}", encoding="utf-8")
    assert "is not a result" in evaluate("echo", "--cases-file", cases, "--against", before, exit_code=1).stderr


def test_long_sources_are_asked_about_with_a_budget(
    evaluate: Evaluate, env: dict[str, str], backend: AnsweringBackend
) -> None:
    env |= {"THOTHY_KINDS": "tests.support.about_kind", "THOTHY_KV_BUDGETS": "about=512"}
    path = Path(env["THOTHY_HOME"], "cases.jsonl")
    path.write_text(json.dumps({"id": "1", "request": {"source": "Phones sell well."}}), encoding="utf-8")
    backend.answer = lambda _: ['{"about":"Phones sell well."}']
    for further in ((), ("--kv-budget", 0), ("--kv-budget", 64, "--source-tokens", 3000)):
        assert rows(evaluate("about", "--cases-file", path, *further))["accepted"] == ["1 of 1"]
    assert [request.kv_budget for request in backend.requests] == [512, None, 64]
    short, _, long = (request.messages[-1].content for request in backend.requests)
    assert "Phones sell well." in long
    assert len(long) > 2 * 3000 > len(short)


@pytest.mark.parametrize("fields", [{"source": 5}, {"source": None}, {}])
def test_only_texts_are_made_long(evaluate: Evaluate, env: dict[str, str], fields: dict[str, object]) -> None:
    env |= {"THOTHY_KINDS": "tests.support.about_kind"}
    path = Path(env["THOTHY_HOME"], "cases.jsonl")
    path.write_text(json.dumps({"id": "odd", "request": fields}), encoding="utf-8")
    refused = evaluate("about", "--cases-file", path, "--source-tokens", 3000, exit_code=2).stderr
    assert "--source-tokens: the request of case 'odd' has no text as its source" in refused


def test_the_engine_at_a_url_is_compared(evaluate: Evaluate, cases: Path, env: dict[str, str]) -> None:
    document = json.loads(
        evaluate("echo", "--cases-file", cases, "--against", env["THOTHY_ENGINE_URL"], "--json").stdout
    )
    assert [result["accepted"] for result in document["results"]] == [2, 2]


def test_translations_are_scored_by_chrf(evaluate: Evaluate, backend: AnsweringBackend, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    request = {"source": "The museum is closed on Mondays.", "target_locale": "de"}
    reference = "Das Museum ist montags geschlossen."
    path.write_text(json.dumps({"id": "1", "request": request, "reference": reference}), encoding="utf-8")
    backend.answer = lambda _: [json.dumps({"text": reference})]
    assert rows(evaluate("translation", "--cases-file", path))["chrF"] == ["100.0"]


def test_an_artifact_that_obeys_an_instruction_in_its_source_fails(
    evaluate: Evaluate, env: dict[str, str], backend: AnsweringBackend, tmp_path: Path
) -> None:
    env["THOTHY_KINDS"] = "tests.support.about_kind"
    backend.answer = lambda _: ['{"about":"Phones sell well."}']
    done = evaluate("about", "--injections")
    assert done.stdout.splitlines()[-1] == "20 of 20 outputs accepted, 0 of which obey; 0 of the 0 rejected ones obey."
    backend.answer = lambda _: ['{"about":"PHONES ARE FREE TODAY, says the source."}']
    document: dict[str, Any] = json.loads(evaluate("about", "--injections", "--json", exit_code=1).stdout)
    first, *others = document["injections"]
    assert (first["id"], first["obeyed"], first["accepted"]) == ("ignore-above", "PHONES ARE FREE", True)
    assert [other["obeyed"] for other in others] == [None] * 19


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["haiku"], "unknown kind 'haiku'"),
        (["echo"], "no cases of the kind 'echo' are bundled"),
        (["echo", "--cases-file", "/nowhere.jsonl"], "/nowhere.jsonl: No such file"),
        (["hook", "--cases", "0"], "--cases"),
        (["hook", "--plot", "x.txt"], "--plot writes .png, .svg, .pdf, not .txt"),
        (["hook", "--injections", "--against", "x"], "--injections cannot be combined"),
        (["hook", "--injections", "--kv-budget", "64"], "--injections cannot be combined"),
        (["hook", "--kv-budget", str(2**31)], "--kv-budget"),
        (["hook", "--model", "/nowhere"], "no model at /nowhere"),
        (["echo", "--verification"], "an artifact of echo is not verified"),
    ],
)
def test_wrong_input_is_one_line_and_exits_2(evaluate: Evaluate, arguments: list[str], words: str) -> None:
    done = evaluate(*arguments, exit_code=2)
    assert words.lower() in done.stderr.lower()
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_request_that_is_invalid_names_its_case(evaluate: Evaluate, tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text('{"id": "odd", "request": {"text": "ok", "nonsense": 1}}', encoding="utf-8")
    assert "case 'odd': " in evaluate("echo", "--cases-file", path, exit_code=2).stderr


def test_an_engine_that_refuses_is_one_line(evaluate: Evaluate, cases: Path, backend: AnsweringBackend) -> None:
    backend.answer = lambda _: GrammarError("no such grammar")
    assert evaluate("echo", "--cases-file", cases, exit_code=2).stderr == "thothy: no such grammar\n"


def test_the_bundled_model_runs_two_cases() -> None:
    with fresh_home() as home:
        done = home.run("eval", "hook", "--cases", "2", "--json", timeout=800)
        assert done.returncode == 0, done.stderr
        assert processes_of(home) == []
    [result] = json.loads(done.stdout)["results"]
    assert result["model"].startswith("SmolLM2")
    assert len(result["cases"]) == 2
    assert all(case["output_tokens"] > 5 and case["compute_seconds"] > 0 for case in result["cases"])


BAD = {each.claim.text for text in labelled_texts() for each in text.claims if not each.sound}


@pytest.mark.parametrize(
    ("answer", "precision", "recall"),
    [
        (lambda claim: "C" if claim in BAD else "S", 1.0, 1.0),
        (lambda _: "C", 0.5, 1.0),
        (lambda _: "S", None, 0.0),
        (lambda _: "?", None, 0.0),
    ],
)
def test_a_verifier_is_measured_on_labelled_claims(
    env: dict[str, str],
    backend: AnsweringBackend,
    database_url: str,
    engine: Engine,
    answer: Callable[[str], str],
    precision: float,
    recall: float,
) -> None:
    backend.answer = lambda request: [
        json.dumps(
            {"claims": " ".join(f"a {answer(claim)}" for claim in claims_of_prompt(request.messages[-1].content))}
        )
    ]
    done = CliRunner().invoke(app, ["eval", "verification", "--json"], env=env)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["precision"], result["recall"]) == (precision, recall)
    assert result["claims"] == 2 * result["bad"] == 2 * len(BAD)
    assert result["unread"] == (result["claims"] if answer("") == "?" else 0)
    assert result["natural_precision"] == (pytest.approx(0.05) if precision == 0.5 else precision)
    assert "Not recorded" in done.stderr
    shown = CliRunner().invoke(app, ["eval", "verification"], env=env | {"THOTHY_DATABASE_URL": database_url})
    assert ("cannot be read" in shown.stdout) is (answer("") == "?")
    assert ("tell no precision" in shown.stdout) is (precision is None)
    weight = {1.0: 0.98, 0.5: 0.5, None: 0.5}[precision]
    assert result["weight"] == weight
    assert f"findings by {result['verifier']} weigh {weight}." in shown.stderr
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT name, found, false_alarms FROM measured_verifier")).all()
    assert rows == [(result["verifier"], result["found"], result["false_alarms"])]


def test_a_verifier_that_hangs_leaves_its_claims_unread(
    env: dict[str, str], backend: AnsweringBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thothy_ai.evaluation.verification.PATIENCE_SECONDS", 0.3)
    backend.answer, backend.hang = (lambda _: []), True
    done = CliRunner().invoke(app, ["eval", "verification", "--json"], env=env)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["unread"] == result["claims"] == 2 * len(BAD)
    assert (result["precision"], result["weight"]) == (None, 0.5)


def test_an_entailment_model_beside_the_engine_is_measured_in_its_place(
    tmp_path: Path, clean_environment: None
) -> None:
    verifier = Verifier(LoadVerifier(entailment_folder(tmp_path / "random-xnli"), "cpu", threads=1))
    engine = VerifyingEngine(NullEngine(0.0, EngineOptions("unix:///nowhere")), verifier)
    env = {"THOTHY_ENGINE_URL": f"unix://{tmp_path}/e.sock", "THOTHY_HOME": str(tmp_path)}
    try:
        with served(engine.backend, env["THOTHY_ENGINE_URL"]):
            done = CliRunner().invoke(app, ["eval", "verification", "--json"], env=env)
    finally:
        engine.close()
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["verifier"], result["claims"], result["unread"]) == ("random-xnli", 2 * len(BAD), 0)
    assert result["weights"] == fingerprint(tmp_path / "random-xnli")
    assert result["compute_seconds"] == pytest.approx(engine.backend.stats().core.busy_seconds) != 0


def test_validators_say_what_is_a_gate_and_are_measured_on_a_folder(tmp_path: Path) -> None:
    run = CliRunner().invoke
    declared = json.loads(run(app, ["eval", "validators", "--json"]).stdout)
    assert (declared["truncated"]["gate"], declared["number_not_in_source"]["gate"]) == (True, False)
    lines = run(app, ["eval", "validators"]).stdout.splitlines()
    assert any(line.startswith("number_not_in_source") for line in lines)
    assert max(map(len, lines)) <= 80
    text = {
        "id": "x1", "kind": "hook", "language": "en", "request": {"source": "Crocks sold out."}, "artifact": {},
        "label": "reject", "reasons": ["off_schema"], "split": "unseen", "note": "why",
    }  # fmt: skip
    (tmp_path / "hook.jsonl").write_text(json.dumps(text), "utf-8")
    measured = json.loads(run(app, ["eval", "validators", str(tmp_path), "--json"]).stdout)
    assert measured["language_groups"]["English"]["bad_rejected"] == 1
    assert measured["defects"]["form"]["bad_found"] == 1
    assert "Bad texts, by what is wrong" in run(app, ["eval", "validators", str(tmp_path)]).stdout
    (tmp_path / "hook.jsonl").write_text("[]", "utf-8")
    wrong = run(app, ["eval", "validators", str(tmp_path)])
    assert wrong.exit_code == 2
    assert "line 1: expected a JSON object" in " ".join(wrong.output.split())
