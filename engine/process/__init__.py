"""An engine process: load, serve, watch, end in an orderly way."""
