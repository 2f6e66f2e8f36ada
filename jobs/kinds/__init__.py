"""The built-in kinds, one module each. Every module in this package defines a `KIND`."""
