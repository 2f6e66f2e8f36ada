"""`thothy eval`: cases of a kind through a model, and what their verdicts and scores add up to."""
