"""JSON schemas as token grammars: compiling, masks, forced tokens, and closing a text within its limit."""
