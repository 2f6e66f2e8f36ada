"""A tokenizer of single bytes, and a grammar over it by llguidance."""

from __future__ import annotations

import json

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from thothy_ai.engine.grammar.compiler import Grammar, GrammarCompiler
from thothy_ai.engine.text.model_text import core_tokenizer

SCHEMA = {
    "type": "object",
    "properties": {
        "word": {"type": "string", "pattern": "^[a-z]{3,9}$"},
        "sure": {"type": "boolean"},
        "kind": {"enum": ["hook", "trend"]},
    },
    "required": ["word", "sure", "kind"],
    "additionalProperties": False,
}


END, VOCAB = 0, 300


def byte_compiler() -> GrammarCompiler:
    """A fresh one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={"<end>": END} | {byte: 1 + i for i, byte in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
    return GrammarCompiler(core_tokenizer(tokenizer), VOCAB, (END,))


def schema_grammar() -> Grammar:
    """A fresh one of SCHEMA."""
    return byte_compiler().compile(json.dumps(SCHEMA))
