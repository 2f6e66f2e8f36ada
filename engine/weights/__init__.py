"""Where weights come from: Hugging Face folders and GGUF files, and how they become a model."""
