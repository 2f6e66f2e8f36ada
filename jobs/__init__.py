"""Job kinds: what a producer can ask for, how a model is asked, and when an answer can be published.

Pure: no database, no torch. Importing it is light; the language detector loads at its first use.
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
