"""The plans that kinds share, and what they are made of: prompts' budgets, retries, verification, long sources."""
