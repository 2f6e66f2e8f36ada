"""The configuration of a model's folder or file, read without torch."""
