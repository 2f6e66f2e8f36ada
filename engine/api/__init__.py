"""The engine's interface: requests in, deltas and results out, and its statistics.

Its types are plain dataclasses of plain values, without torch or pydantic, so that any process can import them and
send them as msgpack.
"""

from thothy_ai.engine.api.adapters import AdapterInfo
from thothy_ai.engine.api.messages import (
    MAX_TOOL_TEXT,
    MAX_TOOLS,
    CallDelta,
    Message,
    ToolCall,
    ToolChoice,
    Tools,
)
from thothy_ai.engine.api.requests import (
    INTERACTIVE_PRIORITY,
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
    AdapterStats,
    BlockStats,
    CoreStats,
    EngineStats,
    MemoryStats,
    SchedulerStats,
    TextStats,
    TimingStats,
)

__all__ = [
    "INTERACTIVE_PRIORITY",
    "MAX_BEAMS",
    "MAX_CHOICES",
    "MAX_LOGPROBS",
    "MAX_NAME",
    "MAX_PRIORITY",
    "MAX_SCHEMA",
    "MAX_TOOLS",
    "MAX_TOOL_TEXT",
    "AbandonedRequest",
    "AbandonedStats",
    "AbandonedUsage",
    "AdapterInfo",
    "AdapterStats",
    "BeamSearch",
    "BlockStats",
    "CallDelta",
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
    "ToolCall",
    "ToolChoice",
    "Tools",
    "Usage",
]
