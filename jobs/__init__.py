"""Job kinds: the requests a producer can make, their prompts, and the validators of their artifacts.

Pure: no database, no torch. Imports quickly; the language detector is loaded on first use.
"""

from __future__ import annotations

from thothy_ai.jobs import checks, registry
from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.kind import JobKind, Request
from thothy_ai.jobs.api.plan import Call, Context, Early, End, Message, Output, Plan, Previous, Sampling
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason, Verdict
from thothy_ai.jobs.kinds.hook import Hook, HookArtifact
from thothy_ai.jobs.kinds.report import Report, ReportArtifact
from thothy_ai.jobs.kinds.report_section import ReportSection, ReportSectionArtifact
from thothy_ai.jobs.kinds.translation import Translation, TranslationArtifact
from thothy_ai.jobs.kinds.trend_summary import TrendSummary, TrendSummaryArtifact
from thothy_ai.jobs.plans.one_call import OneCall

__all__ = [
    "Artifact", "Call", "Context", "Early", "End", "Hook", "HookArtifact", "JobKind", "Message", "OneCall", "Output",
    "Plan", "Previous", "Rejection", "RejectionReason", "Report", "ReportArtifact", "ReportSection",
    "ReportSectionArtifact", "Request", "Sampling", "Translation", "TranslationArtifact", "TrendSummary",
    "TrendSummaryArtifact", "Verdict", "checks", "registry",
]  # fmt: skip
