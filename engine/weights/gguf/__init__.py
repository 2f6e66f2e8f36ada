"""GGUF files: read, named as transformers does, and converted once to a Hugging Face folder."""
