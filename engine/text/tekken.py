"""Reads Mistral's tekken.json, which some of its models have instead of a tokenizer.json.

transformers converts the vocabulary. These folders often have no chat template, since Mistral's own library writes
prompts in code; the template is then the plain instruction format of the tokenizer's version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Regex, decoders, pre_tokenizers

from thothy_ai.engine.api.errors import UnsupportedModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TEKKEN = "tekken.json"
_SYSTEM = "[SYSTEM_PROMPT]"  # a special token from version 7 on
# https://github.com/mistralai/cookbook/blob/main/concept-deep-dive/tokenization/chat_templates.md
_WITH_SYSTEM = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'system' %}[SYSTEM_PROMPT]{{ message['content'] }}[/SYSTEM_PROMPT]"
    "{% elif message['role'] == 'user' %}[INST]{{ message['content'] }}[/INST]"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] }}{{ eos_token }}"
    "{% else %}{{ raise_exception('unknown role ' + message['role']) }}{% endif %}{% endfor %}"
)
_WITHOUT_SYSTEM = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}[INST]{{ message['content'] }}[/INST]"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] }}{{ eos_token }}"
    "{% else %}{{ raise_exception('unknown role ' + message['role']) }}{% endif %}{% endfor %}"
)


def tekken_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a tekken.json, with a chat template; UnsupportedModelError if transformers is too old."""
    try:
        from transformers.integrations.mistral.tokenizer import convert_tekken_tokenizer  # noqa: PLC0415  slow to import
    except ImportError as error:
        raise UnsupportedModelError(f"{path}: this version of transformers can't convert it: 5.17 can") from error
    tokenizer: PreTrainedTokenizerFast = convert_tekken_tokenizer(str(path))
    if not tokenizer.chat_template:
        takes_system = _SYSTEM in tokenizer.get_vocab()
        tokenizer.chat_template = _WITH_SYSTEM if takes_system else _WITHOUT_SYSTEM
    return tokenizer


def split_as_tekken(tokenizer: PreTrainedTokenizerFast, path: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a tokenizer.json next to a tekken.json, with tekken.json's pattern for splitting texts.

    Some of Mistral's folders were published with a tokenizer.json whose different pattern gives other tokens.
    """
    backend = tokenizer.backend_tokenizer
    if isinstance(backend.decoder, decoders.ByteLevel):
        pattern = json.loads(path.read_text(encoding="utf-8"))["config"]["pattern"]
        cut = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([cut, as_bytes])
    return tokenizer
