"""Ports that are free, and stay so until they are used."""

from __future__ import annotations

import socket
import threading

from thothy_ai.embedded.process import free_ports, reserved_ports


def test_a_range_with_a_port_that_is_taken_is_passed_over() -> None:
    first = free_ports(6)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 1))
        with reserved_ports((first, first + 3), 3) as found:
            assert found == first + 3
        with reserved_ports((first,), 3) as found:
            assert found is None


def test_stacks_that_start_at_the_same_moment_choose_different_ranges() -> None:
    first, stacks = free_ports(3 * 8), 8
    ranges = range(first, first + 3 * stacks, 3)
    chosen: list[int | None] = []
    start, end = threading.Barrier(stacks), threading.Barrier(stacks)

    def stack() -> None:
        start.wait()
        with reserved_ports(ranges, 3) as found:
            chosen.append(found)
            end.wait()  # each keeps its range while the others choose

    threads = [threading.Thread(target=stack) for _ in range(stacks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(chosen)) == stacks
    with reserved_ports(ranges, 3) as found:
        assert found in ranges, "they are free again"
