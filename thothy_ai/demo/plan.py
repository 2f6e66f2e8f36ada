"""The demo's jobs: the same five for each bundled source, siblings that share its KV.

Their outputs are short, so that the bundled model finishes on two cores within two minutes.
"""

from __future__ import annotations

from thothy_ai.demo.sources import load_sources
from thothy_ai.jobs import Hook, ReportSection, Request, Translation, TrendSummary
from thothy_ai.jobs.channels import Channel

_AUDIENCES = ("indie founders", "city planners", "newsletter readers")
_CHANNELS: tuple[Channel, ...] = ("newsletter", "social post", "video", "podcast", "landing page")
_LOCALES = ("de", "fr", "es")


def demo_jobs() -> list[Request]:
    """Five jobs per source, the same on every call: a summary, two hooks, a translation and a report section."""
    jobs: list[Request] = []
    for number, source in enumerate(load_sources()):
        audience, locale = _AUDIENCES[number % len(_AUDIENCES)], _LOCALES[number % len(_LOCALES)]
        first, second = (_CHANNELS[(number + step) % len(_CHANNELS)] for step in (0, 1))
        shortest = min(source.paragraphs, key=len)
        jobs += [
            TrendSummary(source=source.text, audience=audience, length="short"),
            *(
                Hook(source=source.text, audience=audience, channel=channel, tone=tone, variants=1, length="short")
                for channel, tone in ((first, "curious"), (second, "playful"))
            ),
            Translation(source=source.text, passage=shortest, target_locale=locale),
            ReportSection(source=source.text, audience=audience, length="short"),
        ]
    return jobs
