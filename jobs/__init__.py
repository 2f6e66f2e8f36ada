"""Job kinds: the requests a producer can make, their prompts, and the validators of their artifacts.

Pure: no database, no torch. Imports quickly; the language detector is loaded on first use.
"""

from __future__ import annotations

from thothy_ai.jobs import checks, registry
from thothy_ai.jobs.kind import Artifact, JobKind, Message, Rejection, RejectionReason, Request, Sampling, Verdict
from thothy_ai.jobs.kinds.hook import Hook, HookArtifact
from thothy_ai.jobs.kinds.report_section import ReportSection, ReportSectionArtifact
from thothy_ai.jobs.kinds.translation import Translation, TranslationArtifact
from thothy_ai.jobs.kinds.trend_summary import TrendSummary, TrendSummaryArtifact

__all__ = [
    "Artifact",
    "Hook",
    "HookArtifact",
    "JobKind",
    "Message",
    "Rejection",
    "RejectionReason",
    "ReportSection",
    "ReportSectionArtifact",
    "Request",
    "Sampling",
    "Translation",
    "TranslationArtifact",
    "TrendSummary",
    "TrendSummaryArtifact",
    "Verdict",
    "checks",
    "registry",
]
