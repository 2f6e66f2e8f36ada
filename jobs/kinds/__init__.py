"""The built-in kinds, one module each; every module here has a `KIND`."""
