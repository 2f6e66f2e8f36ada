"""Options and files as values: job filters, flags of kinds and engines, JSONL."""
