"""Artifacts as the database gives them, one of each kind."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

JOB = "0199aa00-0000-7000-8000-00003d9a4f10"
QUOTE = "A loaf that has rested keeps for four days [instead of one]."
BODIES: dict[str, dict[str, Any]] = {
    "trend_summary": {
        "tags": ["baking", "slow food"],
        "key_points": [
            {"quote": QUOTE, "point": "Buyers accept 5.20 euros for bread that stays fresh for four days."},
            {"quote": "In 2019 there were six.", "point": "The guild counts 41 such bakeries, up from six in 2019."},
        ],
        "title": "Night-rested bread spreads along the Rhône",
        "confidence": "high",
        "standfirst": "Bakers who let their dough rest overnight have multiplied & customers pay for it.",
        "why_it_matters": "Small shops gain a product that supermarkets find hard to copy.",
    },
    "summary_translation": {
        "tags": ["Backen", "Slow Food"],
        "key_points": [
            {"quote": QUOTE, "point": "Käufer zahlen 5,20 Euro für Brot, das vier Tage lang frisch bleibt."},
            {"quote": "In 2019 there were six.", "point": "Die Zunft zählt 41 solche Bäckereien, 2019 waren es sechs."},
        ],
        "title": "Über Nacht gereiftes Brot breitet sich an der Rhône aus",
        "confidence": "high",
        "standfirst": "Bäcker, die ihren Teig über Nacht ruhen lassen, sind mehr geworden, und Kunden zahlen dafür.",
        "why_it_matters": "Kleine Läden gewinnen ein Produkt, das Supermärkte kaum nachahmen können.",
    },
    "hook": {
        "variants": [
            {"text": "Who needs a machine? Sleep, and let the dough rest. #slowfood", "angle": "the surprise"},
            {"text": "A third more for bread that lasts (four days)?", "angle": "the price"},
        ]
    },
    "translation": {
        "text": "# Brot, das *ruht*\n\nEin Laib kostet bei [Pain Vivant](https://example.org/guild) **5,20 Euro**.\n\n"
        "## Preise\n\n- Guten Tag {{name}}, bei uns ist alles ausverkauft.\n"
    },
    "report": {
        "sections": [
            {
                "citations": [{"quote": "In 2019 there were six."}],
                "body": "The guild says that there were six in 2019. Now it has 41.\n\nDemand grows.",
                "heading": "A fast-growing circle",
            },
            {
                "citations": [{"quote": QUOTE}, {"quote": "In 2019 there were six."}],
                "body": "A rested loaf keeps for four days.",
                "heading": "Better bread",
            },
        ],
        "title": "Slow dough pays off",
        "summary": "Overnight rising sells well, and takes room.",
    },
    "report_section": {
        "heading": "Why now?",
        "body": "A night of rest spares bakers a machine.",
        "citations": [{"quote": '"The night does the work," says Odile Marchand.'}],
    },
    "quiz": {  # of one's own, which does not say how it is published
        "headline": "Bread quiz",
        "questions": [{"question": "How long does it keep?", "answer": "Four days.", "quote": QUOTE}],
        "keywords": ["bread"],
        "level": 2,
        "remark": "Ask *slowly*.",
    },
}
LOCALES = {"translation": "de", "summary_translation": "de"}


def row(kind: str, body: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    return {
        "job_id": JOB,
        "kind": kind,
        "locale": LOCALES.get(kind, "en"),
        "attempt": 1,
        "tenant": "default",
        "verdict": "accepted",
        "review": "approved" if kind == "hook" else None,
        "approved_version": 1 if kind == "hook" else None,
        "decided_by": "Ann" if kind == "hook" else None,
        "decided_at": datetime(2026, 11, 22, 6, 15, tzinfo=UTC) if kind == "hook" else None,
        "reason": None,
        "idempotency_key": None,
        "channel": "social post" if kind == "hook" else None,
        "audience": None,
        "source_key": "5c" * 16,
        "parent_id": None,
        "model": "Qwen3-8B",
        "provenance": {"version": "3", "steps": []},
        "verification": None,
        "seed": 7,
        "created_at": datetime(2026, 11, 22, 4, 30, tzinfo=UTC),
        "body": BODIES[kind] if body is None and kind in BODIES else body,
        "text": "raw output",
        **values,
    }
