"""The null engine: without a model, it answers at once with valid instances of the request's schema."""
