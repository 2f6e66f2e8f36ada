"""Makes the engine that the options ask for; all other code treats engines alike."""

from __future__ import annotations

import os

from thothy_ai.engine.api.backend import RunningEngine
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.entailment.backend import VerifyingEngine
from thothy_ai.engine.entailment.verifier import Verifier
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.serving.address import admissions_at
from thothy_ai.engine.wire.verifier_messages import LoadVerifier

# torch's OpenMP threads spin while they wait, which takes CPU time from the queue's processes on a small machine. To
# spin only briefly costs nothing on an idle machine. torch reads this at its first import.
_SPIN_COUNT = "2000"
# The tokenizers library encodes batches of prompts on threads of its own. Four of them tokenize more than a device can
# prefill, and leave cores to the threads that plan steps and fill masks.
_TOKENIZING_THREADS = max(1, min(4, len(os.sched_getaffinity(0)) // 4))


def make_engine(options: EngineOptions) -> RunningEngine:
    """A started engine, with a verifier if one is asked for; EngineError, in one line, if it cannot be made."""
    if options.verifier is None:
        return _without_verifier(options)
    # The verifier comes first, so that the engine sizes its cache by the memory that is left.
    device = options.verifier_device or options.device
    verifier = Verifier(LoadVerifier(options.verifier.absolute(), device, options.threads, options.log_level))
    try:
        return VerifyingEngine(_without_verifier(options), verifier)
    except BaseException:
        verifier.close()
        raise


def _without_verifier(options: EngineOptions) -> RunningEngine:
    if options.null:
        return NullEngine(options.null_latency, options, admissions_at(options.url))
    os.environ.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)
    os.environ.setdefault("RAYON_NUM_THREADS", str(_TOKENIZING_THREADS))
    from thothy_ai.engine.process.remote_engine import start_remote  # noqa: PLC0415  a null engine has no tokenizer

    return start_remote(options)
