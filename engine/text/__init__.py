"""From text to token ids and back, outside the core's thread."""
