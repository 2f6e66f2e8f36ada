"""The token that ends an assistant's turn, for models of which only the chat template shows it.

A checkpoint's generation_config.json lists the tokens at which generation stops. Fine-tuned or converted weights often
lack it. Their configuration may name only the end-of-text token (Gemma's `<eos>`), while the model ends its answers
with the token that its template writes after them (`<end_of_turn>`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from thothy_ai.engine.api import Message
from thothy_ai.engine.text.content_forms import ContentForms

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_PROBE = "an-answer"
_TURNS = [
    Message("user", "."),
    Message("assistant", _PROBE),
    Message("user", "."),  # in some templates the next turn's beginning ends an answer
]
_CHANNEL = "<|channel|>"  # GPT-OSS writes several messages per answer, each with an end


def names_ends(folder: Path) -> bool:
    """Whether generation_config.json lists tokens at which generation stops."""
    try:
        content = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
        return content.get("eos_token_id") is not None
    except (OSError, ValueError, AttributeError, RecursionError):  # other readers report a broken file
        return False


def end_of_turn(tokenizer: PreTrainedTokenizerFast) -> int | None:
    """The special token that the template writes right after an assistant's message; None if it writes none there."""
    special = {token.content: id_ for id_, token in tokenizer.added_tokens_decoder.items() if token.special}
    if not tokenizer.chat_template or _CHANNEL in special:
        return None
    try:
        text = ContentForms(tokenizer).render(_TURNS, {})
    except Exception:  # noqa: BLE001  a template is a program that comes with the model; it may refuse these messages
        return None
    after = text.partition(_PROBE)[2].lstrip()
    found = max((name for name in special if name and after.startswith(name)), key=len, default=None)
    return None if found is None else special[found]
