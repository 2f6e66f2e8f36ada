"""`python -m thothy_ai.engine.bench` is `thothy bench drain`, where the service's libraries are not installed."""

from thothy_ai.engine.bench.command import main

main()
