"""Text by itself: encodable strings, Markdown blocks, division into parts, languages and locales."""
