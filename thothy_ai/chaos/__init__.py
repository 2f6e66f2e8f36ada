"""`thothy chaos`: a seeded run that repeatedly breaks a stack of its own, and then checks what must still hold.

plan        which faults, in which order, drawn from the seed
rig         the stack: servers and processes, each of which can be killed
proxies     between one worker and its servers: slow or cut     clock       a skewed clock for that worker
faults      what each fault does, and how it is undone
workload    the jobs that are sent during the run, of the kind in `kind`
invariants  what must hold, as SQL                              summary     what happened, as numbers
run         the run itself
"""

from __future__ import annotations
