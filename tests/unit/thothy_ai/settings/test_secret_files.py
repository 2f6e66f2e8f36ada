"""Every secret setting can come from a file; what is wrong with a file is said in one line that never shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from thothy_ai.errors import ConfigError
from thothy_ai.settings import OwnSettings, Settings
from thothy_ai.settings.secret_files import MAX_SECRET_BYTES, is_secret

pytestmark = pytest.mark.usefixtures("clean_environment")
SECRETS = {
    "database_url": "postgresql+psycopg://me:hunter2@db:5432/thothy",
    "database_password": "hunter2",
    "redis_url": "redis://:hunter2@cache:6379/0",
    "redis_password": "hunter2",
    "engine_token": "hunter2",
    "engine_tokens": "one=hunter2",
    "webhook_secrets": "hunter2" * 4,
    "alert_webhook_url": "https://hooks.example.com/hunter2",
    "alert_slack_url": "https://hooks.slack.com/services/hunter2",
    "alert_smtp_password": "hunter2",
}


def secret_fields() -> set[str]:
    return {name for name, field in Settings.model_fields.items() if is_secret(field)}


def test_these_are_the_secrets() -> None:
    assert secret_fields() == set(SECRETS)


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("settings_cls", [Settings, OwnSettings])
def test_every_secret_is_read_from_its_file(
    name: str, settings_cls: type[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(SECRETS[name] + "\n")
    monkeypatch.setenv(f"THOTHY_{name.upper()}_FILE", str(tmp_path / "secret"))
    value = getattr(settings_cls.load(home=tmp_path), name)
    assert isinstance(value, SecretStr)
    assert value.get_secret_value() == SECRETS[name]
    assert f"THOTHY_{name.upper()}_FILE" in settings_cls.variables()


def test_arguments_and_variables_win_over_a_file_and_a_file_over_a_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("file")
    (tmp_path / "stack.env").write_text("THOTHY_ENGINE_TOKEN=stack\n")
    monkeypatch.setenv("THOTHY_ENGINE_TOKEN_FILE", str(tmp_path / "secret"))
    assert Settings.load(home=tmp_path).reveal_engine_token() == "file"
    monkeypatch.setenv("THOTHY_ENGINE_TOKEN", "variable")
    assert Settings.load(home=tmp_path).reveal_engine_token() == "variable"
    assert Settings.load(home=tmp_path, engine_token="argument").reveal_engine_token() == "argument"
    monkeypatch.setenv("THOTHY_ENGINE_TOKEN", "")
    assert Settings.load(home=tmp_path).reveal_engine_token() == "file"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"hunter2\nhunter3\n", "has more than one line"),
        (b"hunter2\xff", "is not UTF-8 text"),
        (b"hunter2" * MAX_SECRET_BYTES, "is longer than 64 KiB"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    content: bytes | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("THOTHY_REDIS_PASSWORD_FILE", str(file))
    with pytest.raises(ConfigError) as caught:
        Settings.load(home=tmp_path)
    assert str(caught.value) == f"THOTHY_REDIS_PASSWORD_FILE: {file} {says}"


def test_a_folder_is_what_docker_makes_of_a_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_DATABASE_PASSWORD_FILE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"^THOTHY_DATABASE_PASSWORD_FILE: .* cannot be read: Is a directory$"):
        Settings.load(home=tmp_path)


def test_a_file_of_another_account_is_named(tmp_path: Path) -> None:
    """In a child process without root's rights, which may read every file."""
    file = tmp_path / "secret"
    file.write_text("hunter2")
    file.chmod(0)
    code = (
        "import os\n"
        "from pathlib import Path\n"
        "from thothy_ai.settings.secret_files import read_secret\n"
        "os.setuid(65534) if os.geteuid() == 0 else None\n"
        f"read_secret('THE_VARIABLE', Path({str(file)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith(f"ConfigError: THE_VARIABLE: {file} cannot be read: Permission denied\n")


def test_a_wrong_value_in_a_file_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("mysql://me:hunter2@db/x")
    monkeypatch.setenv("THOTHY_DATABASE_URL_FILE", str(tmp_path / "secret"))
    with pytest.raises(ConfigError, match=r"^THOTHY_DATABASE_URL: must look like") as caught:
        Settings.load(home=tmp_path)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        (
            "postgresql://me@db:5432/x?sslmode=require",
            "postgresql+psycopg://me:a%2Fb%40%3A%C3%A9@db:5432/x?sslmode=require",
        ),
        ("postgresql://me:@db/x", "postgresql+psycopg://me:@db/x"),
        ("postgresql://me:own@db/x", "postgresql+psycopg://me:own@db/x"),
    ],
)
def test_a_password_of_any_characters_completes_a_url_without_one(url: str, whole: str, tmp_path: Path) -> None:
    settings = Settings.load(home=tmp_path, database_url=url, database_password="a/b@:é")
    assert settings.require_database_url() == whole


def test_redis_takes_a_password_without_a_user(tmp_path: Path) -> None:
    settings = Settings.load(home=tmp_path, redis_url="rediss://cache:6380/0", redis_password="p@ss")
    assert settings.require_redis_url() == "rediss://:p%40ss@cache:6380/0"
