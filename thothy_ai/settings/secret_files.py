"""`SecretFileSource`: secrets from files, as Docker and Kubernetes mount them.

Each secret setting is also read from the file that `THOTHY_<NAME>_FILE` names, so that no password is in a container's
environment, where `docker inspect` would show it. The variable itself takes precedence over the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from thothy_ai.errors import ConfigError
from thothy_ai.settings.variables import PREFIX

MAX_SECRET_BYTES = 64 * 1024


def secret_variable(name: str) -> str:
    """The variable that names the file of a secret setting."""
    return f"{PREFIX}{name.upper()}_FILE"


def is_secret(field: FieldInfo) -> bool:
    """Whether a setting is a `SecretStr`, including an annotated or optional one."""
    return _names_secret(field.annotation)


class SecretFileSource(EnvSettingsSource):
    """The secrets in the files that the environment names."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls)
        secrets = (name for name, field in settings_cls.model_fields.items() if is_secret(field))
        self._files = {name: file for name in secrets if (file := self.env_vars.get(secret_variable(name).lower()))}

    def __call__(self) -> dict[str, Any]:
        """The values by setting name. Raises `ConfigError` for a file that contains no secret."""
        return {name: read_secret(secret_variable(name), Path(file)) for name, file in self._files.items()}


def read_secret(variable: str, file: Path) -> str:
    """A file's content without its final line break. Raises `ConfigError`, which never shows the content."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_SECRET_BYTES + 1)
        text = content.decode().rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"{variable}: {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{variable}: {file} is not UTF-8 text") from None
    if len(content) > MAX_SECRET_BYTES:
        raise ConfigError(f"{variable}: {file} is longer than {MAX_SECRET_BYTES // 1024} KiB")
    if not text.strip():
        raise ConfigError(f"{variable}: {file} is empty")
    if "\n" in text:
        raise ConfigError(f"{variable}: {file} has more than one line")
    return text


def _names_secret(annotation: Any) -> bool:  # noqa: ANN401 - a type, a union or an `Annotated`
    return annotation is SecretStr or any(map(_names_secret, get_args(annotation)))
