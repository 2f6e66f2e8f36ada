"""Whether kernels run through Triton's interpreter, on a CPU without a driver."""

from __future__ import annotations

import os

# Its tl.dot is silently wrong on bfloat16, so kernels compute in float32 under it.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
