"""`thothy chaos`: a seeded run over a stack of its own that is broken again and again, and what must hold afterwards.

plan        which faults, in which order, drawn from the seed
rig         the stack: servers and processes, every one of which may die
lines       slow lines between one worker and its servers       clock       a wrong clock for that worker
faults      what each fault does, and how it is undone
workload    the jobs that are sent meanwhile, of the kind in `kind`
invariants  what must hold, as SQL                              ledger      what happened, as numbers
run         the run itself
"""

from __future__ import annotations
