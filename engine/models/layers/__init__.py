"""Parts that model families are composed of. They hold weights; what a step needs beside them is its context."""
