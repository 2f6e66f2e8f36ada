"""Clients and suites that others wrote, against one `thothy serve` with the bundled model.

`make compat` runs all of them, `python -m tests.compat NAME...` some. Each has an environment of its own in
`.cache/compat`: together, they would get versions that are years old.
"""
