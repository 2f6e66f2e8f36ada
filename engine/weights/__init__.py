"""Reads weights from Hugging Face folders and GGUF files, and makes a model of them."""
