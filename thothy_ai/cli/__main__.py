"""`python -m thothy_ai.cli` runs `thothy`."""

from thothy_ai.cli import main

main()
