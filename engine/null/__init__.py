"""An engine that answers at once with valid instances of the schema."""
