"""The engine's socket is in the home if its path fits, in a private folder if not, and on TCP only as a last resort."""

from __future__ import annotations

import logging
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from thothy_ai.embedded import endpoint
from thothy_ai.embedded.endpoint import MAX_SOCKET_PATH, engine_endpoint, remove_socket
from thothy_ai.engine.serving.address import MAX_PATH_BYTES, TcpAddress, UnixAddress, parse_address

LONG = Path("/") / "a-folder-with-a-long-name" / ("x" * 150)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only parents of private folders are `run`, then `tmp`, in a folder with a short path, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="thothy-") as name:
        folder = Path(name)
        (folder / "run").mkdir()
        (folder / "tmp").mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "run"))
        monkeypatch.setattr(endpoint.tempfile, "gettempdir", lambda: str(folder / "tmp"))
        monkeypatch.setattr(endpoint, "FALLBACK", str(folder / "tmp"))
        yield folder
        monkeypatch.undo()


def socket_of(home: Path) -> Path:
    address = parse_address(engine_endpoint(home).url)
    assert isinstance(address, UnixAddress)
    return Path(address.path)


def test_the_limit_is_the_engine_s_and_the_system_s(tmp_path: Path) -> None:
    assert MAX_SOCKET_PATH == MAX_PATH_BYTES
    longest = tmp_path / ("x" * (MAX_SOCKET_PATH - len(str(tmp_path)) - 1))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(longest))
    with socket.socket(socket.AF_UNIX) as listener, pytest.raises(OSError, match="too long"):
        listener.bind(f"{longest}x")


def test_a_short_home_has_the_socket_itself(caplog: pytest.LogCaptureFixture) -> None:
    home = Path("/") / ("x" * (MAX_SOCKET_PATH - len("//engine.sock")))
    assert engine_endpoint(home).url == f"unix://{home}/engine.sock"
    assert engine_endpoint(home).token is None
    assert not caplog.records


def test_a_long_home_has_a_private_folder_elsewhere_that_is_found_again(
    places: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        path = socket_of(LONG)
    assert path.parent.parent == places / "run"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert engine_endpoint(LONG).token is None
    assert str(LONG) in caplog.text
    assert str(path) in caplog.text
    assert socket_of(LONG) == path
    assert socket_of(LONG / "other") != path
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    remove_socket(LONG)
    assert not path.parent.exists()
    assert len(list((places / "run").iterdir())) == 1, "another home's stays"


def readable_by_others(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o750)


def a_link(folder: Path) -> None:
    target = folder.with_name("target")
    target.mkdir(mode=0o700)
    folder.symlink_to(target)


def a_file(folder: Path) -> None:
    folder.touch(mode=0o700)


@pytest.mark.parametrize("obstacle", [readable_by_others, a_link, a_file])
def test_a_folder_that_is_not_private_is_not_used(places: Path, obstacle: Callable[[Path], None]) -> None:
    private = socket_of(LONG).parent
    private.rmdir()
    obstacle(private)
    assert socket_of(LONG).parent.parent == places / "tmp"
    remove_socket(LONG)
    assert private.lstat(), "what is not ours is not removed"


def test_the_last_resort_is_a_tcp_port_with_a_token_of_its_own_and_a_warning(
    places: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in ("run", "tmp"):
        (places / folder).rmdir()
    first, second = engine_endpoint(LONG), engine_endpoint(LONG)
    assert isinstance(parse_address(first.url), TcpAddress)
    assert first.token is not None
    assert len(first.token) >= 32
    assert first.token != second.token
    assert first.token not in repr(first)
    record = caplog.records[0]
    assert record.levelno == logging.WARNING
    for word in (str(LONG), f"{MAX_SOCKET_PATH} bytes", first.url, "THOTHY_ENGINE_TOKEN"):
        assert word in record.getMessage()
    assert first.token not in caplog.text
