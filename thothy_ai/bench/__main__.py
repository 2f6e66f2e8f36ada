"""`python -m thothy_ai.bench` is `thothy bench drain`, where the service's libraries are not installed."""

from thothy_ai.bench.command import main

main()
