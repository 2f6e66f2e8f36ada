"""Adapters as an operator uses them, with the bundled model: each changes what it says, and nothing else."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from openai import NotFoundError, OpenAI

from tests.support.home import Home, fresh_home
from tests.support.patience import PATIENCE
from tests.support.peft_folders import adapter_tensors, write_adapter
from tests.support.queue_bench import eventually

LAYERS, HIDDEN, KEYS = 30, 576, 192  # of SmolLM2-135M
PROMPT = "The makers of clay crocks in Lyon say that"


def voice(folder: Path, seed: int) -> Path:
    """A random adapter of all layers' queries and values, strong enough to be heard."""
    sizes = {"q_proj": (HIDDEN, HIDDEN), "v_proj": (KEYS, HIDDEN)}
    modules = {
        f"model.layers.{layer}.self_attn.{name}": size for layer in range(LAYERS) for name, size in sizes.items()
    }
    return write_adapter(folder, adapter_tensors(modules, rank=8, seed=seed, scale=0.1), rank=8)


@contextmanager
def served(home: Home, *options: str) -> Iterator[OpenAI]:
    """A client of a stack that is stopped as by Ctrl-C at the end."""
    with home.up(*options) as stack:
        try:
            assert stack.stdout is not None
            said = ""
            while "Ctrl-C" not in (line := stack.stdout.readline()):
                assert line, [log.read_text() for log in home.folder.glob("logs/*")]
                said += line
            found = re.search(r"^OpenAI's API: (http://127.0.0.1:\d+/v1)\.$", said, re.MULTILINE)
            assert found
            with OpenAI(base_url=found[1], api_key="any", max_retries=0) as client:
                yield client
        finally:
            stack.send_signal(signal.SIGINT)
            assert stack.wait(PATIENCE) == 0


@pytest.mark.timeout(1800)
def test_voices_of_the_bundled_model(tmp_path: Path) -> None:
    acme, nova = voice(tmp_path / "acme", 1), voice(tmp_path / "nova", 2)
    with fresh_home() as home:
        del home.environment["THOTHY_HTTP_PORT"]
        with served(home, "--adapter", f"acme={acme}") as client:
            bases: list[str] = []

            def listed() -> bool:  # once the engine is registered
                bases[:] = [model.id for model in client.models.list() if "parent" not in (model.model_extra or {})]
                return bool(bases)

            eventually(listed)
            (base,) = bases

            def text(model: str) -> str:
                answer = client.completions.create(model=model, prompt=PROMPT, max_tokens=12, temperature=0)
                return answer.choices[0].text

            plain, first = text(base), text("acme")
            assert plain != first
            loaded = home.run("adapters", "load", f"nova={nova}")
            assert loaded.returncode == 0, loaded.stderr
            eventually(lambda: "nova" in {model.id for model in client.models.list()})
            second = text("nova")
            assert len({plain, first, second}) == 3
            assert (text(base), text("acme"), text("nova")) == (plain, first, second)

            # Other weights under a name are heard at once, whatever the prefix cache has of the old ones.
            assert home.run("adapters", "load", f"acme={nova}").returncode == 0
            assert text("acme") == second
            # What runs when its adapter is unloaded ends with it; what comes later is refused.
            pieces = client.completions.create(model="nova", prompt=PROMPT, max_tokens=40, temperature=0, stream=True)
            begun = next(iter(pieces)).choices[0].text
            assert home.run("adapters", "unload", "nova").returncode == 0
            assert (begun + "".join(piece.choices[0].text for piece in pieces)).startswith(second)
            with pytest.raises(NotFoundError):
                text("nova")

            refused = home.run(
                "adapters", "load", f"odd={write_adapter(tmp_path / 'odd', _of_another_model(), rank=8)}"
            )
            assert (refused.returncode, refused.stdout) == (1, "")
            assert len(refused.stderr.splitlines()) == 1

            enqueued = home.run("enqueue", "completion", "--prompt", PROMPT, "--model", "acme", "--json")
            assert enqueued.returncode == 0, enqueued.stderr
            assert home.run("drain", "--timeout", "9m").returncode == 0
            shown = home.run("artifacts", "list", "--json")
            assert json.loads(shown.stdout)
            bill = json.loads(home.run("report", "bill", "--json").stdout)
            assert bill["by_model"]["acme"]["accepted"] == 1
            assert bill["by_model"]["acme"]["busy_seconds"] > 0
            assert home.run("doctor").returncode == 0


def _of_another_model() -> dict[str, object]:
    return dict(adapter_tensors({"model.layers.0.self_attn.q_proj": (64, 64)}, rank=8))
