"""`thothy chaos`: a seeded run over a stack of its own that is broken repeatedly, and what must hold afterwards.

plan        which faults, in which order, drawn from the seed
rig         the stack: servers and processes, each of which may die
proxies     between one worker and its servers: slow or cut     clock       a skewed clock for that worker
faults      what each fault does, and how it is undone
workload    the jobs that are sent meanwhile, of the kind in `kind`
invariants  what must hold, as SQL                              summary     what happened, as numbers
run         the run itself
"""

from __future__ import annotations
