"""Starts the service, makes the environments, runs the clients, and says which failed."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from thothy_ai.admin.model_aliases import set_alias
from thothy_ai.db.connect import make_engine
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.process import free_port
from thothy_ai.embedded.stack import DOOR, SERVICES
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.settings import OwnSettings

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "compat"
ALIASES = ("gpt-5.4", "gpt-6-astra", "gpt-3.5-turbo-instruct")  # for which openai-python's own tests ask
LIMIT_SECONDS = 900  # for one client
OPENAI_TESTS = (
    "pytest-asyncio", "pytest-xdist", "respx", "nest_asyncio", "inline-snapshot", "dirty-equals", "time-machine",
)  # fmt: skip


@dataclass(frozen=True)
class Client:
    """Packages with their versions, and the command that runs its tests in its environment."""

    packages: Sequence[str]
    command: Callable[[Path], Sequence[str]]
    source: str = ""  # a package whose source is unpacked in the environment, for its own tests
    null: bool = False  # against an engine without a model: its tests bound no answer, and look at forms alone
    npm: bool = False


def pytest(environment: Path) -> tuple[str, ...]:
    return (str(environment / "bin" / "python"), "-Bm", "pytest", "-qp", "no:cacheprovider", "--no-header", "-rfEx")


def ours(*names: str, options: Sequence[str] = ()) -> Callable[[Path], Sequence[str]]:
    """The tests of these names in `clients/`; none of our configuration or fixtures applies to them."""
    paths = [str(HERE / "clients" / f"{name}.py") for name in names]
    return lambda environment: (*pytest(environment), "-c", os.devnull, "--noconftest", *options, *paths)


def own(environment: Path) -> Sequence[str]:
    """openai-python's own tests, as far as the routes are ours, and ids and values are none that only OpenAI has."""
    [root] = environment.glob("source/openai-*/")
    files = ("chat/test_completions.py", "test_completions.py", "test_models.py", "test_files.py", "test_batches.py")
    answered = "(Completions and create) or (Models and (list or retrieve))"
    wanted = f"({answered} or ((Files or Batches) and (list or path_params))) and not all_params"
    tests = [str(root / "tests" / "api_resources" / name) for name in files]
    return (*pytest(environment), "-n0", "--rootdir", str(root), "-k", wanted, *tests)


CLIENTS = {
    "openai-2": Client(("openai==2.54.0",), ours("openai_client")),
    "openai-3": Client(("openai==3.57.0",), ours("openai_client")),
    "langchain": Client(
        ("langchain-openai==1.7.3", "langchain-tests==1.1.9", "pytest-asyncio"),
        ours("langchain_client", options=("-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=session")),
    ),
    "llama-index": Client(("llama-index-llms-openai-like==0.8.1",), ours("llama_index_client")),
    "instructor": Client(("instructor==1.17.0",), ours("instructor_client")),
    "pydantic-ai": Client(("pydantic-ai-slim[openai]==2.68.0",), ours("pydantic_ai_client")),
    "litellm": Client(("litellm==1.106.2",), ours("litellm_client")),
    "llm": Client(("llm==0.36",), ours("llm_client")),
    "compatcanary": Client(
        ("compatcanary@0.2.2",),
        lambda environment: (str(environment / "node_modules/.bin/compatcanary"),),
        npm=True,
        null=True,
    ),
    "openai-own": Client(("openai[aiohttp]==3.57.0", *OPENAI_TESTS), own, source="openai==3.57.0", null=True),
    "schemathesis": Client(("schemathesis==4.32.5",), ours("openai_document", "our_document"), null=True),
}


def main() -> None:
    """Run the clients that are named, or all."""
    names = sys.argv[1:] or list(CLIENTS)
    if unknown := set(names) - CLIENTS.keys():
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(CLIENTS)}")
    failed = []
    for null in (False, True):
        if chosen := [name for name in names if CLIENTS[name].null is null]:
            with serving(null=null) as (url, model):
                failed += [name for name in chosen if not passes(name, url, model)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def passes(name: str, url: str, model: str) -> bool:
    """Whether a client's tests pass against this service."""
    client, began = CLIENTS[name], time.monotonic()
    environment = made(name, client)
    say(f"\n== {name}: {', '.join(client.packages)}")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("THOTHY_", "OPENAI_"))}
    given = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", "TEST_API_BASE_URL": url}
    given |= {"COMPAT_MODEL": model, "OPENAI_MODEL": model}
    command, variables = client.command(environment), kept | given
    try:
        code = subprocess.run(command, cwd=environment, env=variables, timeout=LIMIT_SECONDS, check=False).returncode
    except subprocess.TimeoutExpired:
        say(f"not done after {LIMIT_SECONDS} s")
        code = 1
    say(f"== {name}: {'failed' if code else 'passed'} in {time.monotonic() - began:.0f} s")
    return code == 0


@contextmanager
def serving(*, null: bool) -> Iterator[tuple[str, str]]:
    """The URL of a service with the bundled model, or none, which also answers to `ALIASES`, and the model's name."""
    with tempfile.TemporaryDirectory(prefix="thothy-compat-") as folder:
        home = Path(folder)
        home.chmod(0o755)  # servers run as the user `nobody`, who must be able to traverse it
        path = bundled_model_path()
        settings = OwnSettings.load(home=home, model=path, http_port=free_port(), metrics_port=0, log_level="WARNING")
        name = "null" if null else path.stem
        with EmbeddedStack(settings, services=(*SERVICES, DOOR), null=null) as stack:
            database = make_engine(stack.settings, application="compat", pool_size=1)
            for alias in ALIASES:
                set_alias(database, alias, name)
            database.dispose()
            yield f"http://127.0.0.1:{settings.http_port}/v1", name


def made(name: str, client: Client) -> Path:
    """The client's environment; made anew when its packages change."""
    environment, wanted = CACHE / name, "\n".join((*client.packages, client.source))
    stamp = environment / "made-of"
    if stamp.exists() and stamp.read_text() == wanted:
        return environment
    say(f"making {environment}")
    if client.npm:
        subprocess.run(("npm", "install", "--silent", "--prefix", str(environment), *client.packages), check=True)
        stamp.write_text(wanted)
        return environment
    subprocess.run((sys.executable, "-m", "venv", "--clear", str(environment)), check=True)
    pip = (str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check")
    subprocess.run((*pip, "install", "-q", "pytest", *client.packages), check=True)
    if client.source:
        source = environment / "source"
        plain = ("--no-deps", "--no-binary", ":all:", "-d", str(source))
        subprocess.run((*pip, "download", "-q", *plain, client.source), check=True)
        [archive] = source.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(source, filter="data")
    stamp.write_text(wanted)
    return environment


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
