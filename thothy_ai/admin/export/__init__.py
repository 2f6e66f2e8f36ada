"""Artifacts as files to publish or paste: Markdown, HTML, tables and JSON, for the CLI and over HTTP."""
