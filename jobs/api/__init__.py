"""What a kind and its plan are made of: requests, artifacts, calls, outputs and verdicts."""
