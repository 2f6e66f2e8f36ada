"""Runs a worker over a fake engine; its argument is the seconds that a generation takes."""

from __future__ import annotations

import sys

from tests.support.fake_engine import FakeClient
from thothy_ai.settings import Settings
from thothy_ai.worker import main

if __name__ == "__main__":
    main(Settings.load(), lambda _: FakeClient(float(sys.argv[1])))
