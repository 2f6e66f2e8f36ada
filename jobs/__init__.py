"""Job kinds: the requests a producer can make, their prompts, and the validators of their artifacts.

Pure: no database, no torch. Each name is imported on its first use: a command that only lists jobs needs no kind.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thothy_ai.jobs import checks, registry
    from thothy_ai.jobs.api.artifact import Artifact
    from thothy_ai.jobs.api.kind import JobKind, Policy, Request
    from thothy_ai.jobs.api.plan import Call, Context, Early, End, Message, Output, Plan, Previous, Sampling
    from thothy_ai.jobs.api.verdict import Finding, Rejection, RejectionReason, Verdict
    from thothy_ai.jobs.kinds.hook import Hook, HookArtifact
    from thothy_ai.jobs.kinds.report import Report, ReportArtifact
    from thothy_ai.jobs.kinds.report_section import ReportSection, ReportSectionArtifact
    from thothy_ai.jobs.kinds.translation import Translation, TranslationArtifact
    from thothy_ai.jobs.kinds.trend_summary import TrendSummary, TrendSummaryArtifact
    from thothy_ai.jobs.kinds.trend_summary.values import SummaryTranslation, SummaryTranslationArtifact
    from thothy_ai.jobs.plans.one_call import OneCall

__all__ = [
    "Artifact", "Call", "Context", "Early", "End", "Finding", "Hook", "HookArtifact", "JobKind", "Message",
    "OneCall", "Output", "Plan", "Policy", "Previous", "Rejection", "RejectionReason", "Report", "ReportArtifact",
    "ReportSection", "ReportSectionArtifact", "Request", "Sampling", "SummaryTranslation",
    "SummaryTranslationArtifact", "Translation", "TranslationArtifact", "TrendSummary", "TrendSummaryArtifact",
    "Verdict", "checks", "registry",
]  # fmt: skip

_CLASSES = {
    "api.artifact": {"Artifact"},
    "api.kind": {"JobKind", "Policy", "Request"},
    "api.plan": {"Call", "Context", "Early", "End", "Message", "Output", "Plan", "Previous", "Sampling"},
    "api.verdict": {"Finding", "Rejection", "RejectionReason", "Verdict"},
    "kinds.hook": {"Hook", "HookArtifact"},
    "kinds.report": {"Report", "ReportArtifact"},
    "kinds.report_section": {"ReportSection", "ReportSectionArtifact"},
    "kinds.translation": {"Translation", "TranslationArtifact"},
    "kinds.trend_summary": {"TrendSummary", "TrendSummaryArtifact"},
    "kinds.trend_summary.values": {"SummaryTranslation", "SummaryTranslationArtifact"},
    "plans.one_call": {"OneCall"},
}

if not TYPE_CHECKING:  # to type checkers, any name would exist

    def __getattr__(name: str) -> object:
        for module, classes in _CLASSES.items():
            if name in classes:
                return getattr(import_module(f"{__name__}.{module}"), name)
        if name in __all__:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
