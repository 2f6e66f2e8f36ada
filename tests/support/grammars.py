"""Grammars of schemas that llguidance can compile."""

from __future__ import annotations

from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.grammar.json_schema import JsonGrammar


def compiled(compiler: GrammarCompiler, schema: str) -> JsonGrammar:
    grammar = compiler.compile(schema)
    assert isinstance(grammar, JsonGrammar)
    return grammar
