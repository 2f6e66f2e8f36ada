"""What can go wrong in the engine, as types. `code` is what crosses the socket and what a job's reason is."""

from __future__ import annotations

from typing import ClassVar


class EngineError(Exception):
    """Base of all errors the engine raises on purpose."""

    code: ClassVar[str] = "engine_error"


class InvalidRequestError(EngineError):
    """A sampling parameter or a prompt that can't be served, whatever the load."""

    code = "invalid_request"


class PromptTooLongError(EngineError):
    """The prompt fills the model's context or the whole KV pool: no room is left for one new token."""

    code = "prompt_too_long"


class GrammarError(EngineError):
    """The JSON schema does not compile to a grammar."""

    code = "invalid_grammar"


class NoFiniteScoreError(EngineError):
    """The model's scores of a request's next token are NaN or infinite: a weight is broken, or a number overflows."""

    code = "no_finite_score"


class ModelLoadError(EngineError):
    """The model's folder or file is missing, truncated or inconsistent."""

    code = "model_load"


class UnsupportedModelError(ModelLoadError):
    """An architecture or a tensor type that this engine does not implement."""

    code = "unsupported_model"


class OutOfMemoryError(ModelLoadError):
    """Weights and the smallest useful KV pool do not fit the device."""

    code = "out_of_memory"


class EngineLostError(EngineError):
    """The engine's process or its connection went away with the request in flight."""

    code = "engine_lost"


class EngineStoppedError(EngineError):
    """The engine was told to stop and did, before the request was done: it did not break."""

    code = "engine_stopped"


class EngineDrainingError(EngineError):
    """The engine finishes what it has and takes nothing new."""

    code = "engine_draining"


class ProtocolError(EngineError):
    """A frame that is not a message of this protocol."""

    code = "protocol"


def _tree(root: type[EngineError]) -> dict[str, type[EngineError]]:
    codes = {root.code: root}
    for child in root.__subclasses__():
        codes |= _tree(child)
    return codes


def from_code(code: str, message: str) -> EngineError:
    """Rebuild the error that a peer sent as (code, message); an unknown code becomes `EngineError`."""
    return _tree(EngineError).get(code, EngineError)(message)
