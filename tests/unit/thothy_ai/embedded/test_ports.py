"""Ports that are free."""

from __future__ import annotations

import socket

from thothy_ai.embedded.process import first_free, free_ports


def test_a_range_with_a_port_that_is_taken_is_passed_over() -> None:
    first = free_ports(4)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 1))
        assert first_free((first, first + 2), 2) == first + 2
        assert first_free((first,), 2) is None
