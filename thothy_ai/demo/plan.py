"""What the demo asks for: a mixed queue over the bundled sources, always the same."""
