"""Reads GGUF files, renames their tensors as in transformers, and converts each file once to a Hugging Face folder."""
