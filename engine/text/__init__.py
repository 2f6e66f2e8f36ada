"""From text to token ids and back, off the core's path."""
