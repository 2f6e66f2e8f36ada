"""Draws frozen values as tables, Markdown, HTML and live displays."""
