"""What readers get of an artifact: pieces, whatever the kind, and their Markdown, HTML and plain text."""
