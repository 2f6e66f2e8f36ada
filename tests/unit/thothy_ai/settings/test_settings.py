"""Settings: sources and their precedence, validation, and that passwords never leak."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from sqlalchemy import make_url
from sqlalchemy.dialects.postgresql import psycopg

from thothy_ai.embedded.home import locked
from thothy_ai.errors import ConfigError
from thothy_ai.settings import OwnSettings, Settings, endpoint

DATABASE = "postgresql+psycopg://me:hunter2@db.example:6543/thothy"
REDIS = "redis://:hunter2@cache.example:6390/0"

pytestmark = pytest.mark.usefixtures("clean_environment")


def test_no_setting_is_required_to_load(tmp_path: Path) -> None:
    settings = Settings.load(home=tmp_path)
    assert settings.database_url is None
    assert (settings.tenant, settings.queue_prefix) == ("default", "thothy:")
    assert settings.kinds == ()


def test_precedence_is_arguments_environment_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stack.env").write_text("THOTHY_TENANT=stack\nTHOTHY_LEASE_SECONDS=70\nTHOTHY_ENGINE_URL=unix:///s\n")
    monkeypatch.setenv("THOTHY_HOME", str(tmp_path))
    monkeypatch.setenv("THOTHY_TENANT", "environment")
    monkeypatch.setenv("THOTHY_LEASE_SECONDS", "80")
    settings = Settings.load(lease_seconds=90)
    assert (settings.engine_url, settings.tenant, settings.lease_seconds) == ("unix:///s", "environment", 90)


def test_stack_env_is_read_from_the_home_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stack.env").write_text(f"THOTHY_DATABASE_URL={DATABASE}\n")
    monkeypatch.setenv("THOTHY_HOME", "/elsewhere")
    assert Settings.load(home=tmp_path).require_database_url() == DATABASE


@pytest.mark.parametrize(
    "garbage", [b"what is this\n", b"THOTHY_TENANT='a'\nword\n", b"\xff\xfe\x00", b"THOTHY_TENANT='a\n"]
)
def test_a_damaged_stack_env_is_one_error_of_ours(
    tmp_path: Path, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "stack.env").write_bytes(garbage)
    says = r"stack\.env, line \d is not NAME=value: remove the file, and start the stack again$"
    with pytest.raises(ConfigError, match=says) as caught:
        Settings.load(home=tmp_path)
    assert "\n" not in str(caught.value)
    assert caplog.records == []
    assert OwnSettings.load(home=tmp_path).tenant == "default"  # a stack that starts here replaces the file


def test_a_stack_that_starts_takes_nothing_from_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stack.env").write_text("THOTHY_MODEL=/gone\nTHOTHY_TENANT=stack\n")
    monkeypatch.setenv("THOTHY_HOME", str(tmp_path))
    monkeypatch.setenv("THOTHY_TENANT", "environment")
    settings = OwnSettings.load()
    assert (settings.home, settings.model, settings.tenant) == (tmp_path, None, "environment")


def test_an_empty_variable_counts_as_unset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_DATABASE_URL", "")
    with pytest.raises(ConfigError, match="THOTHY_DATABASE_URL is not set"):
        Settings.load(home=tmp_path).require_database_url()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgres_urls_are_normalized_to_one_driver(scheme: str) -> None:
    url = Settings.load(database_url=f"{scheme}://me@db/thothy").require_database_url()
    assert url == "postgresql+psycopg://me@db/thothy"


@pytest.mark.parametrize(
    ("given", "hosts", "ports"),
    [
        ("me:pw@a:1,b:2/x", "a,b", "1,2"),
        ("me:pw@a,b/x", "a,b", "5432,5432"),
        ("me:pw@[::1]:1,b:2/x", "::1,b", "1,2"),
        ("me:pw@a:1,[::1]:2/x", "a,::1", "1,2"),
        ("me:pw@/x?host=a:1&host=b:2", "a,b", "1,2"),
        ("me:pw@/x?host=a:1,b:2", "a,b", "1,2"),
        ("me:pw@/x?host=a,b&port=1,2", "a,b", "1,2"),
        ("me:pw@/x?host=a,b&port=7", "a,b", "7,7"),
        ("me:pw@/x?host=a&host=b", "a,b", "5432,5432"),
        ("me:pw@ignored/x?host=a,b", "a,b", "5432,5432"),
        ("me:pw@/x?hostaddr=10.0.0.1,10.0.0.2&port=1,2", "10.0.0.1,10.0.0.2", "1,2"),
        ("me:pw@/x?host=/run/a,b&port=1,2", "/run/a,b", "1,2"),
        ("me:pw@/x?host=::1", "::1", "5432"),
        ("me:pw@/x?host=a:1", "a", "1"),
        ("me:pw@%2Frun%2Fa/x", "/run/a", "5432"),
    ],
)
def test_hosts_of_a_database_in_every_form(given: str, hosts: str, ports: str) -> None:
    url = Settings.load(database_url=f"postgresql://{given}").require_database_url()
    [], options = psycopg.dialect().create_connect_args(make_url(url))
    assert (options["host"], options["port"], options["user"], options["password"]) == (hosts, ports, "me", "pw")
    assert options.get("target_session_attrs") == ("read-write" if "," in hosts else None)
    assert Settings.load(database_url=url).require_database_url() == url


def test_a_url_says_which_of_several_hosts_is_wanted(tmp_path: Path) -> None:
    given = "postgresql://me@a,b/x?target_session_attrs=any&sslmode=require&sslrootcert=/ca.pem"
    url = Settings.load(database_url=given, database_password="p@w/d").require_database_url()
    [], options = psycopg.dialect().create_connect_args(make_url(url))
    assert (options["target_session_attrs"], options["password"]) == ("any", "p@w/d")
    assert (options["sslmode"], options["sslrootcert"]) == ("require", "/ca.pem")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("me:hunter2/x@a:1,b:2/x", "is not a URL (special characters in a password must be percent-encoded)"),
        ("me:hunter2@a:1,b:port/x", "is not a URL (special characters in a password must be percent-encoded)"),
        ("me:hunter2@a:1,b:70000/x", "is not a URL (special characters in a password must be percent-encoded)"),
        ("me:hunter2@/x?host=a,b,c&port=1,2", "names 3 hosts and 2 ports"),
        ("me:hunter2@a,b", "does not name a database"),
    ],
)
def test_wrong_hosts_of_a_database(given: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.load(database_url=f"postgresql://{given}")
    assert str(caught.value) == f"THOTHY_DATABASE_URL: {says}"


@pytest.mark.parametrize("url", ["redis://:hunter2@a:1,b:2/0", "redis://a,b", "rediss://me:hunter2@a,b:2/0?x=1"])
def test_redis_is_one_server(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.load(redis_url=url)
    assert str(caught.value).startswith("THOTHY_REDIS_URL: must name one server")
    assert Settings.load(redis_url="redis://:hunter,2@a:1/0")


def test_kinds_of_a_stack_count_only_while_it_runs(tmp_path: Path) -> None:
    """They are imported: a folder that was unpacked must not name code of its own."""
    (tmp_path / "stack.env").write_text("THOTHY_KINDS=acme.sonnet\nTHOTHY_TENANT=stack\n")
    assert Settings.load(home=tmp_path).kinds == ()
    with locked(tmp_path):
        (tmp_path / "stack.env").write_text("THOTHY_KINDS=acme.sonnet\nTHOTHY_TENANT=stack\n")
        assert Settings.load(home=tmp_path).kinds == ("acme.sonnet",)
    (tmp_path / "stack.env").write_text("THOTHY_KINDS=acme.sonnet\nTHOTHY_TENANT=stack\n")
    assert (Settings.load(home=tmp_path).kinds, Settings.load(home=tmp_path).tenant) == ((), "stack")


def test_kinds_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_KINDS", "acme.sonnet, acme.limerick,")
    assert Settings.load().kinds == ("acme.sonnet", "acme.limerick")


def test_kinds_may_be_a_json_list_since_a_path_may_hold_a_comma(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_KINDS", '["/a,b/quiz.py", "acme.sonnet"]')
    settings = Settings.load()
    assert settings.kinds == ("/a,b/quiz.py", "acme.sonnet")
    monkeypatch.setenv("THOTHY_KINDS", settings.environment()["THOTHY_KINDS"])
    assert Settings.load() == settings
    monkeypatch.setenv("THOTHY_KINDS", "[quiz")
    with pytest.raises(ConfigError, match=r"^THOTHY_KINDS: must be names and paths, separated by commas"):
        Settings.load()


def test_kinds_in_files_are_known_by_their_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process, in another folder, must find the same file."""
    (tmp_path / "quiz.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("THOTHY_KINDS", "quiz, quiz.py,kinds/poem.py,~/haiku.py,sonnet")
    found = str(tmp_path / "quiz.py")
    assert Settings.load().kinds == (found, found, str(tmp_path / "kinds/poem.py"), "/home/ada/haiku.py", "sonnet")


BUDGETS = "must be KIND=TOKENS, separated by commas, or *=TOKENS: a number such as 2048, or 0"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("LEASE_SECONDS", "soon", "must be a number"),
        ("LEASE_SECONDS", "0", "must be greater than 0"),
        ("LEASE_SECONDS", "inf", "must be a finite number"),
        ("MAX_ATTEMPTS", "three", "must be a whole number"),
        ("MAX_ATTEMPTS", "0", "must be at least 1"),
        ("METRICS_PORT", "70000", "must be at most 65535"),
        ("PRICE_PER_COMPUTE_HOUR", "-1", "must be at least 0"),
        ("KV_BUDGETS", "report=2048,hook=-5", BUDGETS),
        ("KV_BUDGETS", "report=2048.5", BUDGETS),
        ("KV_BUDGETS", "2048", BUDGETS),
        ("KV_BUDGETS", f"report={2**31}", BUDGETS),
        (
            "POLICIES",
            "report=lenient",
            "must be KIND=POLICY, separated by commas, or *=POLICY: one of review, publish, strict",
        ),
        ("CURRENCY", "US dollars", "must have at most 8 characters"),
        ("LOG_LEVEL", "LOUD", "must be 'DEBUG', 'INFO', 'WARNING', 'ERROR' or 'CRITICAL'"),
    ],
)
def test_a_message_says_what_is_expected(monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str) -> None:
    monkeypatch.setenv(f"THOTHY_{name}", value)
    with pytest.raises(ConfigError) as caught:
        Settings.load()
    assert str(caught.value) == f"THOTHY_{name}: {says}"


def test_the_log_level_may_be_lower_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_LOG_LEVEL", "debug")
    assert Settings.load().log_level == "DEBUG"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_described(name: str) -> None:
    """The reference page is made of these descriptions."""
    description = Settings.model_fields[name].description
    assert description
    assert description[0].isupper()
    assert description.endswith(".")
    if "seconds" in name:
        assert "econds" in description


@pytest.mark.parametrize("content", [b"THOTHY_TENANT=a\n=b c\n", b"THOTHY_TENANT=a\nnonsense here\n", b"\xff\xfe\x00"])
def test_a_garbled_stack_env_is_named(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "stack.env").write_bytes(content)
    line = 2 if content.startswith(b"THOTHY") else 1
    with pytest.raises(ConfigError, match=rf"stack\.env, line {line} is not NAME=value: remove the file") as caught:
        Settings.load(home=tmp_path)
    assert "\n" not in str(caught.value)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "mysql://me:hunter2@db/thothy"),
        ("DATABASE_URL", "postgresql://me:hunter2@db"),
        ("DATABASE_URL", "postgresql://me:hunter2/x@db:5432/thothy"),
        ("DATABASE_URL", "hunter2"),
        ("REDIS_URL", "http://:hunter2@cache"),
        ("REDIS_URL", "redis://:hunter2@cache:port/0"),
        ("REDIS_URL", "rediss://:hunter2@cache:6379/0?ssl_ca_certs=/nowhere/ca.pem"),
        ("ENGINE_NAME", "a b"),
        ("ENGINE_NAME", "x" * 101),
        ("MODEL_NAME", "a/b"),
        ("ENGINE_URL", "tcp://127.0.0.1"),
        ("ENGINE_URL", "unix:"),
        ("LEASE_SECONDS", "0"),
        ("LEASE_SECONDS", "inf"),
        ("LEASE_SECONDS", "soon"),
        ("MAX_ATTEMPTS", "0"),
        ("METRICS_PORT", "70000"),
        ("LOG_LEVEL", "LOUD"),
    ],
)
def test_a_malformed_value_is_reported_by_name_without_the_value(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"THOTHY_{name}", value)
    with pytest.raises(ConfigError, match=f"^THOTHY_{name}: ") as caught:
        Settings.load()
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_lease_outlives_two_heartbeats_that_are_missed() -> None:
    assert Settings.load(lease_seconds=30, heartbeat_seconds=10)
    for lease, heartbeat in ((10, 5), (29, 10)):
        with pytest.raises(ConfigError) as caught:
            Settings.load(lease_seconds=lease, heartbeat_seconds=heartbeat)
        words = (
            f"THOTHY_LEASE_SECONDS ({lease} s) must be at least three times THOTHY_HEARTBEAT_SECONDS ({heartbeat} s)"
        )
        assert str(caught.value) == words


SEVERAL = {
    "gates_as_findings": ("repetition", "truncated"),
    "http_hosts": "example.org, localhost",
    "http_proxies": "10.0.0.1",
    "kinds": ("a.b", "c"),
    "kv_budgets": {"*": 0, "hook": 2048},
    "model_prices": ("small=0.5", "large=2"),
    "policies": {"*": "strict", "hook": "publish"},
    "webhook_networks": "10.1.0.0/16,fd00::/8",
}


def test_another_process_gets_the_same_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.load(home=tmp_path, database_url=DATABASE, lease_seconds=50, model="/m", **SEVERAL)
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings.load() == settings


def test_settings_with_several_entries_are_all_among_those() -> None:
    of_several = {name for name, value in Settings.load() if isinstance(value, (tuple, list, dict, set))}
    assert of_several <= SEVERAL.keys()


def test_passwords_are_not_printed() -> None:
    settings = Settings.load(database_url=DATABASE, redis_url=REDIS)
    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
    assert settings.require_redis_url() == REDIS
    assert (endpoint(DATABASE), endpoint(REDIS)) == ("db.example:6543", "cache.example:6390")


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://:pw@cache/0", "cache:6379"),
        ("postgresql://me:pw@db/x", "db:5432"),
        ("postgresql://me:pw@/x?host=/run/postgresql", "/run/postgresql"),
        ("postgresql:///x?host=db.example&port=6543", "db.example:6543"),
        ("postgresql:///x", "localhost:5432"),
        ("postgresql://me:pw@a:1,b,[::1]:3/x", "a:1, b:5432, [::1]:3"),
        ("postgresql:///x?host=a:1&host=b:2", "a:1, b:2"),
        ("postgresql:///x?host=a,b&port=1,2", "a:1, b:2"),
        ("postgresql:///x?host=/run/a,/run/b", "/run/a, /run/b"),
        ("redis://:pw@[::1]:6390/0", "[::1]:6390"),
        ("tcp://127.0.0.1:9", "127.0.0.1:9"),
        ("unix:///run/engine.sock", "/run/engine.sock"),
    ],
)
def test_endpoints_for_messages(url: str, where: str) -> None:
    assert endpoint(url) == where


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings.load().tenant = "other"


IMPORTS = """
import time
began = time.process_time()
import pydantic, pydantic_settings, sqlalchemy.ext.asyncio
libraries = time.process_time() - began
import thothy_ai.producer
print((time.process_time() - began) / libraries)
"""


def test_a_producer_is_imported_as_fast_as_its_libraries_allow() -> None:
    """In half a second of a quiet machine's processor, 2.3 times what these libraries take. On a busy one both take
    longer.
    """
    command = [sys.executable, "-c", IMPORTS]
    times = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3)]
    assert min(times) < 3


@pytest.mark.parametrize("tenant", ["", " ", "../../evil", ".x", "a/b", "<b>", "=1+1", "-x", "a\nb", "a ", "x" * 101])
def test_a_tenant_is_a_name_that_can_be_printed_anywhere(tenant: str) -> None:
    with pytest.raises(ConfigError, match="THOTHY_TENANT: must be 1 to 100 letters"):
        Settings.load(tenant=tenant)


@pytest.mark.parametrize("tenant", ["acme", "Acme GmbH & Co", "ops@acme.example", "a", "日本", "it's", "7:eu-west"])
def test_tenants(tenant: str) -> None:
    assert Settings.load(tenant=tenant).tenant == tenant
