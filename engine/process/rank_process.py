"""The process of a rank other than the first: its share of the weights, and a runner of the steps that it receives.

Run as `python -m thothy_ai.engine.process.rank_process CHANNEL NOTICES MEMORY`, with file descriptors that the first
rank has made. It ends with the process that started it.
"""

from __future__ import annotations

import logging
import queue
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from thothy_ai.engine.api.errors import as_engine_error
from thothy_ai.engine.checkpoint.configuration import FolderConfiguration
from thothy_ai.engine.grammar.tokens import CoreTokenizer
from thothy_ai.engine.process.logs import log_to_stderr
from thothy_ai.engine.wire.channel import Channel
from thothy_ai.engine.wire.child import end_at_once, end_with_parent
from thothy_ai.engine.wire.rank_messages import (
    FROM_RANK,
    TO_RANK,
    FromRank,
    JoinGroup,
    LoadShare,
    RankFailed,
    RankFound,
    RankLoaded,
    RankReady,
    ToRank,
)

ToLeader = Channel[FromRank, ToRank]

log = logging.getLogger(__name__)


def main() -> None:
    """Join the group, then load and run what the first rank asks for, one model after the other."""
    log_to_stderr()
    end_with_parent()
    descriptor, notices, memory = map(int, sys.argv[1:])
    channel: ToLeader = Channel(socket.socket(fileno=descriptor), FROM_RANK, TO_RANK)
    received = iter(channel)
    first = next(received)
    if not isinstance(first, JoinGroup):
        raise TypeError(f"expected a JoinGroup first, got {first!r:.80}")
    log_to_stderr(first.log_level)
    loads: queue.SimpleQueue[LoadShare] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(received, loads), name="rank-messages", daemon=True).start()
    try:
        _run(channel, first, loads, memory, socket.socket(fileno=notices))
    except Exception as error:
        log.exception("rank %d ends", first.rank)
        channel.send(RankFailed(as_engine_error(error)))
    end_at_once(1)


def _receive(received: Iterator[ToRank], loads: queue.SimpleQueue[LoadShare]) -> None:
    for message in received:
        if isinstance(message, LoadShare):
            loads.put(message)
    end_at_once(1)


def _run(
    channel: ToLeader, join: JoinGroup, loads: queue.SimpleQueue[LoadShare], memory: int, notices: socket.socket
) -> None:
    import torch  # noqa: PLC0415  a failing import must be reported

    from thothy_ai.engine.distributed.code import CODE, device_kind  # noqa: PLC0415
    from thothy_ai.engine.distributed.process_group import ProcessGroup, reach_store  # noqa: PLC0415
    from thothy_ai.engine.distributed.shared_memory import FrameReader  # noqa: PLC0415
    from thothy_ai.engine.distributed.steps import follow, ring_bytes  # noqa: PLC0415
    from thothy_ai.engine.execution.device import resolve_device, use_device  # noqa: PLC0415
    from thothy_ai.engine.process.build import build_runner  # noqa: PLC0415
    from thothy_ai.engine.process.resident import keep_what_is_loaded, load  # noqa: PLC0415

    if join.threads is not None:
        torch.set_num_threads(join.threads)
    device = resolve_device(join.device)
    use_device(device)
    channel.send(RankFound(CODE, device_kind(device)))
    ranks = ProcessGroup(join.rank, join.size, device, reach_store(join.port, join.size))
    while True:
        asked = loads.get()
        loaded = load(asked.options, _GivenText(asked.configuration.configuration()), ranks)
        channel.send(RankLoaded())
        built = build_runner(loaded, asked.options)
        frames = FrameReader(memory, ring_bytes(built.config, loaded.config.vocab_size), notices)
        keep_what_is_loaded()
        channel.send(RankReady())
        follow(built.runner, frames)
        del loaded, built, frames


class _GivenText:
    """Implements `ModelText` with what the first rank has read.

    The tokenizer is a placeholder: a rank decodes no text, and `load` only needs some end-of-text token.
    """

    def __init__(self, configuration: FolderConfiguration) -> None:
        self._configuration = configuration

    def configuration(self, _folder: Path, _named: Path, /) -> FolderConfiguration:
        return self._configuration

    def tokenizer(self, _folder: Path, /) -> CoreTokenizer:
        return CoreTokenizer("", eos_token_id=0, end_of_turn=None)


if __name__ == "__main__":
    main()
