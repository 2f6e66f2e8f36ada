"""Variables that a request sets for the model's chat template: few, short, and scalars of JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping

from thothy_ai.engine.api.errors import InvalidRequestError

MAX_TEMPLATE_OPTIONS = 16
MAX_OPTION_NAME, MAX_OPTION_TEXT = 64, 1_000  # characters
_MAX_INTEGER = 2**53  # up to here, every JSON reader is exact
# Names that the engine itself passes to the template, and arguments of transformers' functions that render it.
RESERVED = frozenset(
    ("messages", "conversation", "conversations", "chat", "tools", "documents", "chat_template", "template",
     "add_generation_prompt", "continue_final_message", "tokenize", "padding", "truncation", "max_length",
     "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs", "processor_kwargs", "kwargs",
     "self")
)  # fmt: skip

TemplateOption = str | int | float | bool | None


def check_template_options(options: Mapping[str, TemplateOption]) -> None:
    """Raise InvalidRequestError for too many options, for names that are reserved or not identifiers, and for values
    that are not scalars.

    Names that end in `_token` are reserved: they are special tokens, which only the model's own template may write.
    """
    if len(options) > MAX_TEMPLATE_OPTIONS:
        says = f"{len(options)} template options; {MAX_TEMPLATE_OPTIONS} are possible"
        raise InvalidRequestError(says, "template_options")
    for name, value in options.items():
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii() or len(name) > MAX_OPTION_NAME:
            raise InvalidRequestError(f"template option {name!r:.80} is not the name of a variable", "template_options")
        if name in RESERVED or name.startswith("_") or name.endswith(("_token", "_tokens")):
            raise InvalidRequestError(f"template option {name!r} is not for requests to set", "template_options")
        scalar = (
            value is None
            or isinstance(value, bool)
            or (isinstance(value, str) and len(value) <= MAX_OPTION_TEXT)
            or (isinstance(value, int) and abs(value) <= _MAX_INTEGER)
            or (isinstance(value, float) and math.isfinite(value))
        )
        if not scalar:
            wanted = f"a boolean, a number, a text of up to {MAX_OPTION_TEXT:,} characters or null is wanted"
            raise InvalidRequestError(f"template option {name!r} is {value!r:.80}: {wanted}", "template_options")
