"""The numbers that may cross between processes."""

from __future__ import annotations

import sys
from typing import Annotated

from msgspec import Meta

# A float that is neither NaN nor infinite. The codec refuses others; constructors don't check.
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
