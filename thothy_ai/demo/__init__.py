"""The newcomer's first run: bundled source texts and a mixed queue of jobs over them."""
