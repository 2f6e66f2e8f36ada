"""Runs the steps of the Dockerfile one by one, where there is no Docker: `make image-steps`.

    python deploy/run_steps.py [--target engine] [--python python3.12] [--torch-index URL] [--run COMMAND]

A stage is an overlay file system over that of the stage it comes FROM; an image is this machine's system with a copy
of one of its Pythons in /usr/local. All of it is in memory, in a mount namespace of its own, and gone at the end.
COMMAND runs in the last stage, as its user. Needs Linux, and root or user namespaces; takes minutes.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[1]
DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
NOT_COPIED = shutil.ignore_patterns("__pycache__")
PYTHON = "import sys; print(sys.base_prefix)"
ENVIRONMENT = {"PATH": PATH, "HOME": "/root", "LD_LIBRARY_PATH": "/usr/local/lib"}
INSIDE = "THOTHY_STEPS_FOLDER"  # set in the namespace: where file systems are mounted


@dataclass
class Stage:
    """A stage as far as its steps have run: its file system and what its later steps inherit."""

    folder: Path
    below: list[Path] = field(default_factory=list)  # upper folders of the stages it comes from, the nearest first
    environment: dict[str, str] = field(default_factory=lambda: dict(ENVIRONMENT))
    workdir: str = "/"
    user: str = "0"

    @property
    def root(self) -> Path:
        """Its whole file system."""
        return self.folder / "root"

    @property
    def layers(self) -> list[Path]:
        """The folders that a stage FROM this one lies over."""
        return [self.folder / "upper", *self.below]

    def mount(self) -> None:
        """Lay the file system over those below and over this machine's."""
        for name in ("upper", "work", "root"):
            (self.folder / name).mkdir(parents=True)
        lower = ":".join(map(str, [*self.below, "/"]))
        options = f"lowerdir={lower},upperdir={self.folder}/upper,workdir={self.folder}/work"
        _call("mount", "-t", "overlay", "overlay", "-o", options, str(self.root))
        _call("mount", "-t", "proc", "proc", str(self.root / "proc"))
        _call("mount", "-t", "tmpfs", "tmpfs", str(self.root / "dev"))
        for name in DEVICES:  # each by itself: nothing of this machine's /dev can be removed through it
            (self.root / "dev" / name).touch()
            _call("mount", "--bind", f"/dev/{name}", str(self.root / "dev" / name))

    def at(self, path: str) -> Path:
        """A path of the stage, as this process sees it; relative ones begin at the working directory."""
        return self.root / (Path(self.workdir) / path).relative_to("/")

    def run(self, command: str, arguments: dict[str, str]) -> None:
        """Run a shell command as the stage's user. SystemExit if it fails."""
        user = f"{self.user}:{self.user}"
        inside = ["chroot", f"--userspec={user}", str(self.root), "/bin/sh", "-c", f"cd {self.workdir} && {command}"]
        done = subprocess.run(inside, env=self.environment | arguments, check=False)
        if done.returncode:
            sys.exit(f"step failed with {done.returncode}: {command}")


class Build:
    """Runs instructions, a stage after the other."""

    def __init__(self, folder: Path, python: str, arguments: dict[str, str]) -> None:
        self._folder, self._python, self._given = folder, python, arguments
        self._stages: dict[str, Stage] = {}
        self._arguments: dict[str, str] = {}
        self.stage = Stage(folder / "none")

    def do(self, instruction: str, value: str) -> None:
        """One instruction."""
        getattr(self, f"_{instruction.lower()}")(value)

    def _from(self, value: str) -> None:
        origin, _, name = value.split()
        parent = self._stages.get(origin)
        self.stage = Stage(self._folder / name)
        if parent is not None:
            self.stage.below, self.stage.environment = parent.layers, dict(parent.environment)
            self.stage.workdir, self.stage.user = parent.workdir, parent.user
        self.stage.mount()
        if parent is None:
            _install_python(self._python, self.stage.root / "usr/local")
        self._stages[name], self._arguments = self.stage, {}

    def _arg(self, value: str) -> None:
        name, _, default = value.partition("=")
        self._arguments[name] = self._given.get(name, default)

    def _env(self, value: str) -> None:
        for pair in shlex.split(value):
            name, _, text = pair.partition("=")
            self.stage.environment[name] = Template(text).safe_substitute(self.stage.environment)

    def _workdir(self, value: str) -> None:
        self.stage.workdir = value
        self.stage.at(".").mkdir(parents=True, exist_ok=True)

    def _user(self, value: str) -> None:
        self.stage.user = value

    def _run(self, value: str) -> None:
        self.stage.run(value, self._arguments)

    def _copy(self, value: str) -> None:
        *sources, target = value.split()
        if sources[0].startswith("--from="):
            other = self._stages[sources.pop(0).partition("=")[2]]
            _copy_all([other.at(source) for source in sources], self.stage.at(target), into=target.endswith("/"))
        elif sources == ["."]:
            for name in _context():
                _copy_all([ROOT / name], self.stage.at(target) / name, into=False)
        else:
            _copy_all([ROOT / source for source in sources], self.stage.at(target), into=True)


def _context() -> list[str]:
    """What .dockerignore leaves of the build context."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("!") for line in lines if line.startswith("!")]


def _copy_all(sources: list[Path], target: Path, *, into: bool) -> None:
    (target if into else target.parent).mkdir(parents=True, exist_ok=True)
    for source in sources:
        place = target / source.name if into else target
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True, ignore=NOT_COPIED)
        else:
            shutil.copy2(source, place)


def _install_python(name: str, target: Path) -> None:
    """Copy an interpreter and its library to where the image has them."""
    python = shutil.which(name) or sys.exit(f"{name} is not installed")
    home = Path(subprocess.run([python, "-c", PYTHON], capture_output=True, text=True, check=True).stdout.strip())
    for folder in ("bin", "lib", "include"):
        _call("cp", "--archive", str(home / folder), f"{target}/")
    (target / "bin/python").unlink(missing_ok=True)
    (target / "bin/python").symlink_to(Path(python).name)


def _call(*command: str) -> None:
    subprocess.run(command, check=True)


def steps(target: str) -> list[tuple[str, str]]:
    """The instructions of the Dockerfile up to the end of a stage, without comments."""
    with (ROOT / "deploy/Dockerfile").open("rb") as file:
        parser = DockerfileParser(fileobj=file)
        found = [(step["instruction"], step["value"]) for step in parser.structure if step["instruction"] != "COMMENT"]
    begins = [at for at, (instruction, _) in enumerate(found) if instruction == "FROM"]
    begin = next(at for at in begins if found[at][1].endswith(f" {target}"))
    return found[: next((at for at in begins if at > begin), len(found))]


def run(options: argparse.Namespace, folder: Path) -> None:
    """Run all steps, each with its time, then the command. Nothing is removed: the namespace ends with this process."""
    _call("mount", "-t", "tmpfs", "tmpfs", str(folder))
    build = Build(folder, options.python, {"TORCH_INDEX": options.torch_index})
    for number, (instruction, value) in enumerate(steps(options.target), 1):
        began = time.monotonic()
        print(f"[{number}] {instruction} {value}", flush=True)
        build.do(instruction, value)
        print(f"[{number}] {time.monotonic() - began:.1f} s", flush=True)
    for command in options.run:
        print(f"$ {command}", flush=True)
        build.stage.run(command, {})


def main() -> None:
    """Enter a namespace, and run there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", default="engine", help="last stage to run")
    parser.add_argument("--python", default="python3.12", help="interpreter that the image's is copied from")
    parser.add_argument("--torch-index", default="", help="the build argument TORCH_INDEX")
    parser.add_argument("--run", action="append", default=[], metavar="COMMAND", help="run in the last stage")
    options = parser.parse_args()
    if folder := os.environ.get(INSIDE):
        run(options, Path(folder))
        return
    mapped = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", *mapped, "--mount", "--pid", "--fork", "--kill-child", sys.executable, *sys.argv]
    place = tempfile.mkdtemp(prefix="thothy-steps-")  # stays empty outside the namespace
    try:
        sys.exit(subprocess.run(command, env=os.environ | {INSIDE: place}, check=False).returncode)
    finally:
        Path(place).rmdir()


if __name__ == "__main__":
    main()
