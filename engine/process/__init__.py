"""An engine's process: makes the engine, watches it and exports metrics."""
