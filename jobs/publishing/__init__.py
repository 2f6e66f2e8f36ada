"""Artifacts in the form that readers get: pieces, for all kinds, and their Markdown, HTML and plain text."""
