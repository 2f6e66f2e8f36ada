"""What is logged while someone looks on fits the terminal, and cannot manipulate it."""

from __future__ import annotations

import logging
import sys

import pytest

from thothy_ai.cli.views.terminal_log import TerminalLog, log_to_terminal


@pytest.fixture
def logger() -> logging.Logger:
    made = logging.Logger("test")
    made.addHandler(TerminalLog())
    return made


def test_a_message_is_wrapped_between_words(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    logger.warning("the account %s is shared:\x1b[2J `useradd --system` gives it one of its own", "nobody")
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "thothy: the account nobody is"
    assert max(map(len, said)) <= 40
    assert "`useradd --system`" in " ".join(said)
    assert "\x1b" not in "".join(said)


def test_an_exception_is_shown_with_its_traceback(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        int("no")
    except ValueError:
        logger.exception("a round failed")
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "thothy: a round failed"
    assert said[-1].startswith("ValueError: invalid literal")


@pytest.mark.parametrize("terminal", [True, False])
def test_only_a_terminal_is_written_to_so(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [*root.handlers])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    log_to_terminal()
    assert any(isinstance(handler, TerminalLog) for handler in root.handlers) is terminal
