"""An engine's process: makes the engine, watches it, exports metrics."""
