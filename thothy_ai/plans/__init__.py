"""Follows a job kind's plan: calls out, outputs in, a verdict at the end."""
