"""The reference pages in `docs/reference/`, written from the code they describe by `make docs`."""
