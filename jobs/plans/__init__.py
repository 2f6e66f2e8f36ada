"""The plans that kinds share, and their parts: output budgets, retries, verification, long sources."""
