"""An engine's process: makes the engine, sizes its memory, watches it, exports metrics."""
