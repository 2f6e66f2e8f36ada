PATIENCE = 240  # seconds after which something that must happen has failed to, on however busy a machine
