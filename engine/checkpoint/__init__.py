"""What a model's folder or file says of itself, read without torch."""
