"""`python -m thothy_ai.bench` is `thothy bench drain`, for machines without the service's libraries."""

from thothy_ai.bench.command import main

main()
