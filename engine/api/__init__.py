"""The engine's interface: requests in, deltas and results out, and its statistics.

Plain dataclasses of plain values, so that they travel as msgpack and import anywhere (no torch, no pydantic).
"""

from thothy_ai.engine.api.requests import (
    MAX_CHOICES,
    MAX_NAME,
    MAX_PRIORITY,
    MAX_SCHEMA,
    AbandonedRequest,
    AbandonedUsage,
    Choice,
    Delta,
    EngineInfo,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Message,
    Usage,
)
from thothy_ai.engine.api.sampling import (
    MAX_BEAMS,
    MAX_LOGPROBS,
    BeamSearch,
    EarlyStopping,
    LogitBias,
    SamplingParams,
    TokenLogprob,
)
from thothy_ai.engine.api.statistics import (
    AbandonedStats,
    BlockStats,
    CoreStats,
    EngineStats,
    MemoryStats,
    SchedulerStats,
    TextStats,
    TimingStats,
)

__all__ = [
    "MAX_BEAMS",
    "MAX_CHOICES",
    "MAX_LOGPROBS",
    "MAX_NAME",
    "MAX_PRIORITY",
    "MAX_SCHEMA",
    "AbandonedRequest",
    "AbandonedStats",
    "AbandonedUsage",
    "BeamSearch",
    "BlockStats",
    "Choice",
    "CoreStats",
    "Delta",
    "EarlyStopping",
    "EngineInfo",
    "EngineStats",
    "FinishReason",
    "GenerationRequest",
    "GenerationResult",
    "LogitBias",
    "MemoryStats",
    "Message",
    "SamplingParams",
    "SchedulerStats",
    "TextStats",
    "TimingStats",
    "TokenLogprob",
    "Usage",
]
