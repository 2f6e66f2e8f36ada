"""Artifacts as files that can be published or pasted: Markdown, HTML, tables and JSON, for the CLI and over HTTP."""
