"""What keeps a model from loading ends the engine with one line."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import torch

from tests.support.engine_process import ended, options, ready, started
from tests.support.patience import PATIENCE
from thothy_ai.engine.api import EngineInfo, EngineStats
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.execution import device
from thothy_ai.engine.process import resident
from thothy_ai.engine.process.main import run_engine
from thothy_ai.engine.process.remote_engine import CoreProcess
from thothy_ai.engine.text.model_text import LocalText
from thothy_ai.engine.wire.channel import Channel
from thothy_ai.engine.wire.core_messages import (
    FROM_CORE,
    TO_CORE,
    CoreReady,
    FolderFound,
    FromCore,
    JsonTokensRead,
    StepReport,
)

APPEARING = """
import os, sys, time
from pathlib import Path
is_dir = Path.is_dir
def looked(self):
    found = is_dir(self)
    if str(self) != {late!r} or found:
        return found
    if "thothy_ai.engine.process.core_process" not in sys.orig_argv:
        os.symlink({model!r}, {late!r})
        return False
    while not is_dir(self):  # the frontend looks first
        time.sleep(0.01)
    return True
Path.is_dir = looked
"""


def test_what_keeps_a_model_from_loading_is_one_line_and_code_2(url: str, tmp_path: Path) -> None:
    with started(options(tmp_path / "nowhere", url)) as process:
        code, errors = ended(process)
    assert code == 2
    assert len(errors) == 1
    assert errors[0].startswith("thothy engine: ")
    assert "no such file" in errors[0]


@pytest.mark.parametrize("fault", ["no weights", "memory", "tokenizer", "device"])
def test_whichever_process_finds_the_fault(
    model: Path, url: str, tmp_path: Path, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The frontend's is this one."""
    chosen, more = model, dict[str, object]()
    if fault in {"no weights", "tokenizer"}:
        chosen = tmp_path / "copy"
        chosen.mkdir()
        left_out = {"no weights": "model.safetensors", "tokenizer": "tokenizer.json"}[fault]
        for file in model.iterdir():
            if file.name != left_out:
                (chosen / file.name).write_bytes(file.read_bytes())
        if fault == "tokenizer":
            (chosen / "tokenizer.json").write_text("{")
    else:
        more = {"memory": {"kv_tokens": 10**12}, "device": {"device": "cuda:99"}}[fault]
    with pytest.raises(SystemExit) as caught:
        run_engine(options(chosen, url, **more))
    assert caught.value.code == 2
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith("thothy engine: ")
    assert {"no weights": "safetensors", "memory": "GB", "tokenizer": "tokenizer", "device": "cuda:99"}[fault] in line


def test_an_error_that_nobody_expected_is_a_traceback_and_code_1(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        'import sys\nif "thothy_ai.engine.process.core_process" in sys.orig_argv:\n'
        "    from thothy_ai.engine.process import resident\n    resident.load = lambda *_: 1 / 0\n"
    )
    with started(options(model, url), tmp_path) as process:
        code, errors = ended(process)
    assert code == 1
    assert any("ZeroDivisionError" in line for line in errors)


def test_a_core_that_is_killed_as_it_loads_is_one_line_and_code_2(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        'import os, sys\nif "thothy_ai.engine.process.core_process" in sys.orig_argv:\n    os.kill(os.getpid(), 9)\n'
    )
    with started(options(model, url), tmp_path) as process:
        code, errors = ended(process)
    assert (code, len(errors)) == (2, 1)
    assert "killed by SIGKILL" in errors[0]


READY = CoreReady(EngineInfo("s", "m", "cpu", "float32", 16, 10, 100, 1.5))
FOLDER, STEP = FolderFound(Path("/m")), StepReport(EngineStats())


@pytest.mark.parametrize("said", [[], [FOLDER], [FOLDER, READY, STEP], [STEP]], ids=len)
def test_a_core_that_ended_while_the_frontend_was_reading(
    said: list[FromCore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had said by then does not matter, except that it was ready: then its end is that of a running engine."""
    process = CoreProcess.__new__(CoreProcess)
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(CoreProcess, "_wait", lambda _: -signal.SIGKILL)
    with closing(Channel(ours, TO_CORE, FROM_CORE)) as process.channel:
        process._messages = iter(process.channel)
        with closing(Channel(theirs, FROM_CORE, TO_CORE)) as core:
            for message in said:
                core.send(message)
        process.send(JsonTokensRead, lambda: JsonTokensRead.of(None))
        if READY in said:
            assert process.expect(CoreReady) == READY
        else:
            with pytest.raises(ModelLoadError, match=r"^while the model was loading, .* was killed by SIGKILL"):
                process.expect(CoreReady)


def test_a_folder_that_appears_after_the_frontend_has_looked_for_it(model: Path, tmp_path: Path) -> None:
    late, url = tmp_path / "late", f"unix://{tmp_path}/e.sock"
    (tmp_path / "sitecustomize.py").write_text(APPEARING.format(model=str(model), late=str(late)))
    with started(options(late, url), tmp_path) as process:
        ready(process)


def test_ends_of_text_of_any_size(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": [config["eos_token_id"], 2**70]}))
    with started(options(folder, f"unix://{tmp_path}/e.sock")) as process:
        ready(process)


def test_a_load_waits_for_triton_unless_it_fails(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    triton, started = threading.Thread(target=lambda: started.wait(timeout=PATIENCE)), threading.Event()
    triton.start()
    monkeypatch.setattr(resident, "start_triton", lambda _: triton)
    with pytest.raises(ModelLoadError, match="no such file"):
        resident.load(options(tmp_path / "nowhere", ""), LocalText())
    loaded = threading.Event()
    monkeypatch.setattr(resident, "load_model", lambda *_, **__: loaded.set())
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(resident.load, options(model, ""), LocalText())
        assert loaded.wait(timeout=PATIENCE)
        with pytest.raises(TimeoutError):
            loading.result(timeout=0.2)
        started.set()
        loading.result(timeout=PATIENCE)


def test_triton_s_first_launch_fails_where_a_kernel_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: torch.device) -> None:
        raise RuntimeError(f"no driver for {device}")

    monkeypatch.setattr(device, "use_device", refuse)
    for kind in ("cuda:0", "cpu"):
        thread = device.start_triton(torch.device(kind))
        thread.join(timeout=PATIENCE)
        assert not thread.is_alive()
