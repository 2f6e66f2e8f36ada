"""Options are derived from request classes with fields of every type."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field
from typer import BadParameter
from typer.testing import CliRunner

from thothy_ai.cli.inputs.kind_flags import flags_of, values_of, with_flags
from thothy_ai.jobs import Request, registry


class Mood(StrEnum):
    CALM = "calm"
    LOUD = "loud"


class Person(Request):
    name: str


class Odd(Request):
    """A request with every type of field that a kind may have."""

    source: str
    short: Annotated[str, Field(max_length=20)] = "short"
    count: int = 3
    weight: Annotated[float, Field(gt=0)] | None = None
    exact: bool = False
    mood: Mood = Mood.CALM
    tone: Literal["dry", "warm", "tongue in cheek"] | None = None
    pages: Annotated[int, Field(ge=1, le=9, description="How long it is.")] = 2
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    edition: Annotated[int, Field(ge=1)] = 7
    tags: tuple[str, ...] = ()
    moods: tuple[Mood, ...] = ()
    author: Person | None = None
    readers: list[Person] = []  # noqa: RUF012 - pydantic copies it
    deadline: str = Field(default="soon", description="When the editor wants it.")


def run(*arguments: str, stdin: str | None = None) -> tuple[Odd | None, str]:
    """Parse a command line with the flags of `Odd`; return the request, if any, and the output."""
    made: list[Odd] = []
    flags = flags_of(Odd)

    def command(*, deadline: str | None = None, **given: Any) -> None:
        made.append(Odd.model_validate(values_of(flags, given)))

    app = typer.Typer(rich_markup_mode=None)
    app.command()(with_flags(command, flags))
    done = CliRunner().invoke(app, arguments, input=stdin)
    return (made[0] if made else None), done.output


def test_plain_values() -> None:
    odd, output = run(
        "--source", "a", "--short", "b", "--count", "7", "--exact", "true", "--mood", "loud", "--tone", "dry",
        "--tags", "x", "--tags", "y",
    )  # fmt: skip
    assert odd == Odd(source="a", short="b", count=7, exact=True, mood=Mood.LOUD, tone="dry", tags=("x", "y")), output


def test_nested_values_are_json() -> None:
    odd, output = run(
        "--source", "a", "--author", '{"name": "Ada"}', "--readers", '{"name": "B"}', "--readers", '{"name": "C"}'
    )
    assert odd == Odd(source="a", author=Person(name="Ada"), readers=[Person(name="B"), Person(name="C")]), output
    assert "--author expects JSON" in run("--source", "a", "--author", "Ada")[1]


def test_a_field_named_like_a_job_s_own_option_keeps_a_flag() -> None:
    odd, output = run("--source", "a", "--request-deadline", "tomorrow", "--deadline", "2h")
    assert odd == Odd(source="a", deadline="tomorrow"), output


def test_long_text_comes_from_a_file_or_standard_input(tmp_path: Path) -> None:
    (tmp_path / "bom.txt").write_bytes("\ufeffSmörgåsbord".encode())
    assert run("--source-file", str(tmp_path / "bom.txt"))[0] == Odd(source="Smörgåsbord")
    assert run("--source-file", "-", stdin="from a pipe")[0] == Odd(source="from a pipe")
    (tmp_path / "latin1.txt").write_bytes(b"Sm\xf6rg\xe5s")
    assert "is not UTF-8" in run("--source-file", str(tmp_path / "latin1.txt"))[1]
    (tmp_path / "endless.txt").write_bytes(b"x" * 4_200_001)
    assert "longer than" in run("--source-file", str(tmp_path / "endless.txt"))[1]
    assert "No such option" in run("--short-file", "x")[1]


def test_help_says_what_is_allowed() -> None:
    output = " ".join(run("--help")[1].split())
    for words in (
        "--source TEXT ",
        "--short TEXT ",
        "--count N ",
        "--weight NUMBER ",
        "--exact true|false ",
        "--mood calm|loud ",
        "--tone dry|warm|'tongue in cheek' ",
        "How long it is. 1 to 9. Default: 2.",
        "--share NUMBER More than 0 and at most 1. Default: 0.5.",
        "--edition N At least 1. Default: 7.",
        "--tags TEXT ",
        "--moods calm|loud ",
        "--author JSON ",
        "--readers JSON ",
        "Default: 3.",
        "May be repeated.",
        "When the editor wants it.",
    ):
        assert words in output


@pytest.mark.parametrize("kind", registry.names())
def test_every_field_of_every_kind_has_a_flag(kind: str) -> None:
    request = registry.find(kind).request
    assert [flag.field for flag in flags_of(request)] == list(request.model_fields)
    assert all(flag.parameters() for flag in flags_of(request))


def test_a_value_and_its_file_are_mutually_exclusive() -> None:
    (flag, *_) = flags_of(Odd)
    with pytest.raises(BadParameter, match="mutually exclusive"):
        flag.value({"source": "a", "source_file": "b"})
