"""Functions for operators: jobs, artifacts, dead letters, history, progress, the drain report, the doctor."""
