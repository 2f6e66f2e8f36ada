"""Tokenizers and chat templates as a load reads them; the frontend, from text to token ids and back."""
