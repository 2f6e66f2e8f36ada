"""The engine's errors as types. Code, message and field cross the socket; the code is stored as a job's reason."""

from __future__ import annotations

from typing import ClassVar

MAX_MESSAGE = 2_000  # characters


class EngineError(Exception):
    """Base of all errors that the engine raises deliberately.

    `field` names the faulty part of a request, as in `n` or `tools.0.function.name`; it is empty if the whole request
    is at fault, or no request. Parameters of `SamplingParams` and `Tools` go by their own names.
    """

    code: ClassVar[str] = "engine_error"

    def __init__(self, message: str = "", field: str = "") -> None:
        """Keep the beginning and the end of a long message: it crosses sockets, is logged, and is stored."""
        self.field = field
        if len(message) > MAX_MESSAGE:
            half = (MAX_MESSAGE - 5) // 2
            message = f"{message[:half]} ... {message[-half:]}"
        super().__init__(message)


class InvalidRequestError(EngineError):
    """A request or an option that can never be served, whatever the load."""

    code = "invalid_request"


class PromptTooLongError(EngineError):
    """The prompt fills the model's context or the whole KV pool: no room is left for one new token."""

    code = "prompt_too_long"


class GrammarError(EngineError):
    """The JSON schema does not compile to a grammar."""

    code = "invalid_grammar"


class BudgetTooSmallError(InvalidRequestError):
    """`max_tokens` cannot hold the shortest text that matches the request's schema."""

    code = "budget_too_small"


class NoFiniteScoreError(EngineError):
    """The logits of a request's next token are NaN or infinite: a weight is corrupt, or a value overflows."""

    code = "no_finite_score"


class ModelLoadError(EngineError):
    """The model's folder or file is missing, truncated or inconsistent."""

    code = "model_load"


class UnsupportedModelError(ModelLoadError):
    """An architecture or a tensor type that this engine does not implement."""

    code = "unsupported_model"


class AdapterLoadError(ModelLoadError):
    """An adapter's folder is missing, truncated or corrupt, does not fit the model, or does not fit in memory."""

    code = "adapter_load"


class UnsupportedAdapterError(AdapterLoadError):
    """An adapter with a feature of PEFT that this engine does not implement."""

    code = "unsupported_adapter"


class UnknownAdapterError(InvalidRequestError):
    """A request names an adapter that is not loaded."""

    code = "unknown_adapter"


class OutOfMemoryError(ModelLoadError):
    """Weights and the smallest useful KV pool do not fit the device."""

    code = "out_of_memory"


class EngineLostError(EngineError):
    """The engine cannot be reached, or its process or connection ended while the request was in flight."""

    code = "engine_lost"


class UninvolvedError(EngineLostError):
    """The engine died while the request was in flight, but not because of it: no step in progress contained it."""

    code = "engine_lost_uninvolved"


class ConnectionLostError(EngineLostError):
    """The connection to the engine broke. Whether the engine died, and why, is unknown."""

    code = "engine_connection_lost"


class EngineAuthenticationError(ConnectionLostError):
    """The engine refuses this client's token, or requires a token that the client did not send."""

    code = "engine_authentication"


class EngineStoppedError(EngineError):
    """The engine was stopped before the request had finished; nothing broke."""

    code = "engine_stopped"


class EngineNotAcceptingError(EngineError):
    """The engine refuses new requests and finishes the accepted ones."""

    code = "engine_draining"  # stored as a job's reason


class ProtocolError(EngineError):
    """A frame that is not a message of this protocol."""

    code = "protocol"


def as_engine_error(error: Exception) -> EngineError:
    """The error itself if it is typed, or an EngineError of its text."""
    return error if isinstance(error, EngineError) else EngineError(str(error))


def one_line(error: BaseException, most: int = 300) -> str:
    """A foreign error's message as one line of at most `most` characters; its type if the message is empty."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else f"{text[: most - 1]}…"


def by_code(root: type[EngineError] = EngineError) -> dict[str, type[EngineError]]:
    """An error class and its subclasses by code. A class without a code of its own never crosses the socket."""
    codes = {root.code: root} if "code" in vars(root) else {}
    for child in root.__subclasses__():
        codes |= by_code(child)
    return codes


def from_code(code: str, message: str, field: str = "") -> EngineError:
    """Rebuild an error that a peer sent; an unknown code becomes `EngineError`."""
    return by_code().get(code, EngineError)(message, field)
