"""The command line of a benchmark script. What is wrong with it is one line on standard error, with exit code 2."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from benchmarks.phases import BenchmarkError
from thothy_ai.engine.api.errors import InvalidRequestError, ModelLoadError, OutOfMemoryError

Number = TypeVar("Number", int, float)


class CommandLine(argparse.ArgumentParser):
    """Reads the options of `python -m benchmarks.NAME`."""

    def __init__(self, name: str, description: str | None) -> None:
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=f"python -m benchmarks.{name}", description=description, formatter_class=layout)

    def error(self, message: str) -> NoReturn:
        """Report a usage error and exit with 2."""
        self.exit(2, f"{self.prog}: {message} (see --help)\n")

    def parse_on_a_gpu(self) -> argparse.Namespace:
        """The options; a usage error without a GPU."""
        import torch  # noqa: PLC0415  slow to import

        given = self.parse_args()
        if not torch.cuda.is_available():
            self.error("this needs a GPU")
        return given

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Report a model or a device that is refused as a usage error; other failures with exit code 1."""
        try:
            yield
        except (OutOfMemoryError, BenchmarkError) as error:
            self.exit(1, f"{self.prog}: {error}\n")
        except (InvalidRequestError, ModelLoadError) as error:
            self.error(str(error))


def positive(kind: Callable[[str], Number], maximum: float = math.inf) -> Callable[[str], Number]:
    """Reads a finite number of this type, greater than 0 and at most `maximum`."""

    def read(text: str) -> Number:
        value = kind(text)
        if not (0 < value <= maximum and math.isfinite(value)):
            limit = "finite" if math.isinf(maximum) else f"at most {maximum:g}"
            raise argparse.ArgumentTypeError(f"{text} must be greater than 0 and {limit}")
        return value

    read.__name__ = kind.__name__  # in argparse's own messages
    return read
