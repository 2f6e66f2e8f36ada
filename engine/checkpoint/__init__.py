"""What the folder or file of a model or an adapter says of itself, read without torch."""
