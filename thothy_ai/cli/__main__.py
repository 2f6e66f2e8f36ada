"""`python -m thothy_ai.cli` is `thothy`."""

from thothy_ai.cli import main

main()
