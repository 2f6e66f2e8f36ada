"""An engine's row in `engine_session`, written by the engine's own side, whether or not a worker runs.

    thothy engine ──pipe: ready, stopping, ended──▶ registrar ──every 2 s: state, counters──▶ Postgres
         ▲                                              │
         └──────────────info, stats─────────────────────┘

The engine knows no database: `registered` starts the registrar, a process of its own, beside it. The pipe's end tells
the registrar that the engine was killed. Without Postgres the engine serves as ever; the counters catch up.
"""

from __future__ import annotations

from thothy_ai.worker.registration.registered import registered

__all__ = ["registered"]
