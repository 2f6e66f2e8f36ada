"""The null engine: answers at once with valid instances of the request's schema, without a model."""
