"""What a translation must keep of its original's markup, and markup that may not be published."""

from __future__ import annotations

import pytest

from thothy_ai.jobs import RejectionReason, checks

KEPT = [
    ("Hallo {name}, Sie haben %d neue Nachrichten.", "Hello {name}, you have %d new messages."),
    ("{{count}} Räder, %(price)s Euro, ${total}, %1$s", "{{count}} bikes, %(price)s euros, ${total}, %1$s"),
    ("Siehe https://example.com/a?b=1.", "See https://example.com/a?b=1"),
    ("[Unser Laden](https://example.com/shop) ist offen.", "[Our shop](https://example.com/shop) is open."),
    ("Schreiben Sie an shop@example.com!", "Write to shop@example.com."),
    ("Führen Sie `make demo` aus.", "Run `make demo`."),
    ("```sh\nmake demo\n```\nFertig.", "```sh\nmake demo\n```\nDone."),
    ("# Räder\n\n- eins\n- zwei\n\nText.", "# Bikes\n\n- one\n- two\n\nText."),
    ("Erste Zeile\nzweite Zeile", "First line\nsecond line"),
    (
        "Ein Absatz, der umbrochen war.",
        "A paragraph that has been wrapped by its author after a number of\ncharacters.",
    ),
    ("<b>Neu</b>: Räder", "<b>New</b>: bikes"),
    ("Klicken Sie auf <0>hier</0>.", "Click <0>here</0>."),
    ("| a | b |\n|---|---|\n| 1 | 2 |", "| x | y |\n|---|---|\n| 1 | 2 |"),
    ("（详见 https://example.com/a）。", "(See https://example.com/a)."),
    ("100 % Rabatt", "100% discount"),
    ("a < b und c > d", "a < b and c > d"),
    ("Danke, @katrin!", "Thanks, @katrin!"),
]
LOST = [
    ("Hallo, Sie haben %d neue Nachrichten.", "Hello {name}, you have %d new messages."),
    ("Hallo {Name}!", "Hello {name}!"),
    ("Sie haben neue Nachrichten.", "You have %d new messages."),
    ("Siehe https://example.com/b.", "See https://example.com/a."),
    ("Siehe dort.", "See https://example.com/a."),
    ("[Unser Laden](https://example.com/laden) ist offen.", "[Our shop](https://example.com/shop) is open."),
    ("[Unser Laden](/laden) ist offen.", "[Our shop](/shop) is open."),
    ("Führen Sie make demo aus.", "Run `make demo`."),
    ("```sh\nmache demo\n```\nFertig.", "```sh\nmake demo\n```\nDone."),
    ("Räder\n\n- eins\n- zwei", "# Bikes\n\n- one\n- two"),
    ("## Räder", "# Bikes"),
    ("- eins und zwei", "- one\n- two"),
    ("Erste Zeile zweite Zeile", "First line\nsecond line"),
    ("Erster Absatz. Zweiter Absatz.", "First paragraph.\n\nSecond paragraph."),
    ("Erster.\n\nZweiter.", "First. Second."),
    ("Neu: Räder", "<b>New</b>: bikes"),
    ("Danke!", "Thanks, @katrin!"),
    ("Räder – siehe https://example.com", "Bikes"),
]


@pytest.mark.parametrize(("text", "original"), KEPT)
def test_kept(text: str, original: str) -> None:
    assert checks.preserved(text, original) is None


@pytest.mark.parametrize(("text", "original"), LOST)
def test_lost(text: str, original: str) -> None:
    finding = checks.preserved(text, original)
    assert finding
    assert finding.reason is RejectionReason.PLACEHOLDER_LOST


UNSAFE = [
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js>",
    "< script >alert(1)",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    '<img src="x" onerror="alert(1)">',
    "<img/src=x/onerror=alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x]( java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x]: javascript:alert(1)",
    "<javascript:alert(1)>",
    "<iframe src=https://evil.example></iframe>",
    '<svg onload="alert(1)">',
    '<p style="background:url(x)">x</p>',
    '<form action="https://evil.example"><input></form>',
    "<meta http-equiv=refresh content=0>",
    "Guter Text.<style>*{display:none}</style>",
]
SAFE = [
    "Plain text with 3 < 4 and a > b.",
    "JavaScript: The Good Parts is a book.",
    "Data: 12 of 20.",
    "<b>bold</b> and <em>stressed</em><br/>",
    "[x](https://example.com/?q=javascript)",
    "<https://example.com>",
    "Press <Enter> and type <name>.",
    "on = off",
    "The script is ready; his style on stage = new.",
    "![Bike](bike.png)",
    "mailto: [x](mailto:shop@example.com)",
    "I <3 bikes",
    "价格 < 100 元",
]


@pytest.mark.parametrize("text", UNSAFE)
def test_unsafe(text: str) -> None:
    finding = checks.unsafe_markup(text)
    assert finding
    assert finding.reason is RejectionReason.UNSAFE_MARKUP


@pytest.mark.parametrize("text", SAFE)
def test_safe(text: str) -> None:
    assert checks.unsafe_markup(text) is None
