"""The plans that kinds share, and what they are made of: prompts' budgets, retries, reviews, long sources."""
