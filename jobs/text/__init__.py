"""Text tools: encodable strings, Markdown blocks, division into parts, languages and locales."""
