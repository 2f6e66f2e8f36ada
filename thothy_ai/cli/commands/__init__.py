"""One module per command group: it parses, calls, and prints."""
