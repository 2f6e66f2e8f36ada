"""The registry finds kinds by name and by request; extra modules add kinds."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from thothy_ai.jobs import Hook, Output, Request, registry
from thothy_ai.jobs.registry import KindError, UnknownKindError, UnknownRequestError

OF_SOURCES = ("hook", "report", "report_section", "summary_translation", "translation", "trend_summary")
BUILT_IN = (*OF_SOURCES, "chat", "completion", "response")
NOTE = """
from typing import Annotated
from thothy_ai.jobs import Artifact, JobKind, Message, OneCall, Request, Sampling
from thothy_ai.jobs.schema import prose

class {request}(Request):
    source: str

class NoteArtifact(Artifact):
    note: Annotated[str, prose(1, 80)]

KIND = JobKind(
    name="{name}",
    request={request},
    artifact=NoteArtifact,
    plan=OneCall(
        artifact=NoteArtifact,
        prompt=lambda request, _: (Message("user", request.source),),
        sampling=lambda _: Sampling(max_tokens=20),
        checks=lambda request, artifact: (),
    ),
    locale=lambda _: "en",
    source=lambda request: request.source,
)
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path for extra kinds; the registry is reset afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_extra", {})
    return tmp_path


def test_the_built_in_kinds_are_found() -> None:
    assert set(BUILT_IN) <= set(registry.names())
    for name in OF_SOURCES:
        kind = registry.find(name)
        assert kind.name == name
        assert registry.kind_of(kind.request.model_construct(source="A text.")) is kind


def test_an_unknown_kind_error_lists_the_available_ones() -> None:
    available = ", ".join(registry.names())  # other tests may have loaded kinds of their own
    with pytest.raises(UnknownKindError, match=f"unknown kind 'sonnet'; available: {available}") as caught:
        registry.find("sonnet")
    assert {"hook", "report", "translation"} <= set(registry.names())
    assert caught.value.kind == "sonnet"


def test_a_request_of_no_kind_is_refused() -> None:
    class Wilder(Hook):
        """A subclass is a different request: it may have other fields."""

    for request in (Request(), Wilder(source="A text.")):
        name = type(request).__name__
        with pytest.raises(
            UnknownRequestError, match=f"no kind has the request class '{name}'; THOTHY_KINDS must name"
        ):
            registry.kind_of(request)


def test_an_extra_module_adds_its_kind(modules: Path) -> None:
    (modules / "extra_note.py").write_text(NOTE.format(name="note", request="Note"))
    registry.load_extra(["extra_note"])
    registry.load_extra(["extra_note"])
    kind = registry.find("note")
    assert registry.kind_of(kind.request(source="A text.")) is kind
    assert kind.plan.judge(kind.request(source="A text."), Output('{"note":"Noted"}')).accepted


def install(folder: Path, name: str, *points: str) -> None:
    """What `pip install` leaves of a package: a module and its metadata."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("\n".join(["[thothy_ai.kinds]", *points, ""]))


@pytest.fixture
def packages(modules: Path) -> Iterator[Path]:
    registry._installed.cache_clear()
    yield modules
    registry._installed.cache_clear()


@pytest.mark.parametrize("value", ["acme_notes", "acme_notes:KIND"])
def test_an_installed_package_s_kinds_are_found_by_their_entry_points(packages: Path, value: str) -> None:
    (packages / "acme_notes.py").write_text(NOTE.format(name="acme_note", request="AcmeNote"))
    install(packages, "acme", f"note = {value}")
    kind = registry.find("acme_note")
    assert kind.plan.judge(kind.request(source="A text."), Output('{"note":"Noted"}')).accepted
    assert registry.kind_of(kind.request(source="A text.")) is kind
    assert set(registry.names()) == {*BUILT_IN, "acme_note"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("acme_away", "entry point 'note' of acme: ModuleNotFoundError: No module named 'acme_away'"),
        ("json:dumps", "entry point 'note' of acme: does not define KIND"),
    ],
)
def test_a_package_whose_kind_cannot_be_loaded_is_named(packages: Path, value: str, words: str) -> None:
    install(packages, "acme", f"note = {value}")
    with pytest.raises(KindError, match=re.escape(words)):
        registry.names()


def test_a_package_cannot_take_a_name(packages: Path) -> None:
    (packages / "acme_hook.py").write_text(NOTE.format(name="hook", request="AcmeHook"))
    install(packages, "acme", "hook = acme_hook")
    with pytest.raises(KindError, match="entry point 'hook' of acme: the name 'hook' is taken by another kind"):
        registry.names()


def test_extra_modules_are_loaded_all_or_none(modules: Path) -> None:
    (modules / "extra_first.py").write_text(NOTE.format(name="first", request="First"))
    with pytest.raises(KindError, match="there is no module 'extra_missing' installed"):
        registry.load_extra(["extra_first", "extra_missing"])
    assert "first" not in registry.names()


def test_names_are_unique(modules: Path) -> None:
    (modules / "extra_hook.py").write_text(NOTE.format(name="hook", request="OtherHook"))
    with pytest.raises(KindError, match="extra_hook: the name 'hook' is taken"):
        registry.load_extra(["extra_hook"])
    assert registry.find("hook").request is Hook


def test_request_classes_are_unique(modules: Path) -> None:
    text = NOTE.format(name="second_hook", request="Unused").replace("request=Unused", "request=Hook")
    text = text.replace("artifact=NoteArtifact", "artifact=HookArtifact")
    (modules / "extra_second.py").write_text(f"from thothy_ai.jobs import Hook, HookArtifact\n{text}")
    with pytest.raises(KindError, match="extra_second: the request class Hook is that of the kind 'hook'"):
        registry.load_extra(["extra_second"])


def test_a_kind_s_artifact_is_the_one_that_its_request_names(modules: Path) -> None:
    text = NOTE.format(name="note", request="Note").replace("Note(Request)", "Note(Request[HookArtifact])")
    (modules / "extra_mistaken.py").write_text(f"from thothy_ai.jobs import HookArtifact\n{text}")
    with pytest.raises(KindError, match=r"Note is a Request\[HookArtifact\], but the kind's artifact is NoteArtifact"):
        registry.load_extra(["extra_mistaken"])


def test_a_file_adds_its_kind(modules: Path) -> None:
    (modules / "from-a-file.py").write_text(NOTE.format(name="note", request="Note"))
    for _ in range(2):
        registry.load_extra([str(modules / "from-a-file.py")])
    assert registry.find("note").request.__name__ == "Note"


def test_a_producer_may_import_the_file_of_a_kind_by_another_name(modules: Path) -> None:
    """As a module of its own package, for example, after the registry has imported it from its path."""
    (modules / "shop").mkdir()
    (modules / "shop" / "extra_label.py").write_text(NOTE.format(name="label", request="Label"))
    registry.load_extra([str(modules / "shop" / "extra_label.py")])
    label = import_module("shop.extra_label").Label
    assert label is not registry.find("label").request
    assert registry.kind_of(label(source="A text.")) is registry.find("label")


def test_a_module_without_a_kind_is_refused(modules: Path) -> None:
    (modules / "extra_nothing.py").write_text("KIND = 'note'\n")
    with pytest.raises(KindError, match="extra_nothing: does not define KIND"):
        registry.load_extra(["extra_nothing"])


def test_importing_and_finding_kinds_imports_nothing_heavy() -> None:
    code = (
        "import sys; from thothy_ai.jobs import registry; registry.find('hook');"
        "print([name for name in ('torch', 'lingua', 'sqlalchemy', 'celery', 'redis') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["", "../../evil", "a/b", ".x", "1x", "a b", "<b>", "a\nb", "x" * 61, "é"])
def test_a_name_that_could_be_a_path_or_markup_is_refused(modules: Path, name: str) -> None:
    (modules / "odd.py").write_text(NOTE.format(request="Odd", name=name.replace("\n", "\\n")))
    with pytest.raises(KindError, match="is not the name of a kind: at most 60 letters"):
        registry.load_extra(["odd"])


@pytest.mark.parametrize("budget", [0, -1, 2048.0, True, "2048", 2**31])
def test_a_kv_budget_is_a_number_of_tokens(budget: object) -> None:
    assert replace(registry.find("hook"), kv_budget=2048).kv_budget == 2048
    with pytest.raises(ValueError, match="of hook is not a number of tokens"):
        replace(registry.find("hook"), kv_budget=budget)
