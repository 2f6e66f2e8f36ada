"""Parts that model families are composed of. They hold weights; all else that a step needs is in its context."""
