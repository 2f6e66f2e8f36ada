"""Imports point one way, nothing uses the bare folder names, and no other library mistakes our folders for its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("jobs", "engine", "kernels", "migrations")
# What the rest of the service may use of the engine: what crosses its line, and the process that it starts.
ENGINE_DOORS = {
    "thothy_ai.engine.api",
    "thothy_ai.engine.checkpoint.bundled",
    "thothy_ai.engine.model_check.check",
    "thothy_ai.engine.model_check.report",
    "thothy_ai.engine.null.instances",
    "thothy_ai.engine.process.gpus",
    "thothy_ai.engine.process.main",
    "thothy_ai.engine.serving.client",
    "thothy_ai.engine.wire.codec",
}
MEASURES_THE_ENGINE = ROOT / "thothy_ai" / "bench"  # from inside, and without the service's libraries
MEASURES_THE_SERVICE = MEASURES_THE_ENGINE / "service"
CLIENT = "thothy_ai.engine.serving.client"
HEAVY = ["torch", "triton", "transformers", "celery", "lingua"]
ENGINE_ALONE = ("pydantic", "sqlalchemy", "celery", "kombu", "redis")


@cache
def imports(path: Path) -> list[str]:
    """Every module that a file names in an import; relative imports are not used in this project."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def files(folder: str) -> list[Path]:
    found = [path for path in (ROOT / folder).rglob("*.py") if not _through_a_link(path)]
    assert found, f"{folder} has no modules"
    return found


def _through_a_link(path: Path) -> bool:
    return any(parent.is_symlink() for parent in path.parents if parent != ROOT and ROOT in parent.parents)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("jobs", ["thothy_ai.jobs"]),
        ("kernels", ["thothy_ai.kernels"]),
        ("engine", ["thothy_ai.engine", "thothy_ai.kernels"]),
    ],
)
def test_imports_point_one_way(folder: str, allowed: list[str]) -> None:
    for path in files(folder):
        for name in imports(path):
            if within(name, "thothy_ai") and name != "thothy_ai":
                assert any(within(name, package) or within(package, name) for package in allowed), f"{path}: {name}"


# A room is a folder or module of the package, or the benchmarks. A room imports only from its own layer and from those
# below, at module level and in functions alike.
LAYERS = (
    {"cli", "benchmarks"},
    {"thothy_ai", "embedded", "chaos", "demo", "bench", "evaluation", "testing"},
    {"worker", "http"},
    {"plans", "batches", "admin"},
    {"producer"},
    {"queue", "migrations"},
    {"db", "foreign"},
    {"telemetry", "crash_points", "settings", "errors"},
    {"engine", "jobs"},
    {"kernels"},
)


def room_of(path: Path) -> str:
    """The room of a file; `thothy_ai` for the package's own `__init__`."""
    parts = path.relative_to(ROOT).parts
    if parts[0] != "thothy_ai":
        return parts[0]
    return "thothy_ai" if parts[1] == "__init__.py" else parts[1].removesuffix(".py")


@cache
def room_graph() -> dict[str, set[str]]:
    """The rooms that each room imports."""
    paths = [path for folder in ("thothy_ai", *FOLDERS, "benchmarks") for path in files(folder)]
    graph: dict[str, set[str]] = {room_of(path): set() for path in paths}
    for path in paths:
        for name in imports(path):
            top, *rest = name.split(".")
            if top == "thothy_ai" and rest:
                graph[room_of(path)].add(rest[0] if rest[0] in graph else "thothy_ai")
    return {room: needs - {room} for room, needs in graph.items()}


def test_rooms_import_only_from_their_layer_and_below() -> None:
    depth = {room: number for number, layer in enumerate(LAYERS) for room in layer}
    graph = room_graph()
    assert set(graph) == set(depth)
    upwards = [(room, need) for room, needs in graph.items() for need in needs if depth[need] < depth[room]]
    assert upwards == []


def test_the_command_line_imports_no_inside_of_the_worker() -> None:
    for path in files("thothy_ai/cli"):
        for name in imports(path):
            if within(name, "thothy_ai.worker") and name not in {"thothy_ai.worker", "thothy_ai.worker.main"}:
                assert within(name, "thothy_ai.worker.registration"), f"{path}: {name}"


def module_name(path: Path) -> str:
    """The import name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "thothy_ai" else ("thothy_ai", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules_by_name() -> dict[str, Path]:
    return {module_name(path): path for folder in ("thothy_ai", *FOLDERS) for path in files(folder)}


@cache
def module_graph() -> dict[str, set[str]]:
    """The modules of ours that each module imports, at module level and in functions."""
    paths = modules_by_name()
    graph: dict[str, set[str]] = {module: set() for module in paths}
    for module, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                graph[module].update(alias.name for alias in node.names if alias.name in paths)
            elif isinstance(node, ast.ImportFrom):
                package = node.module or ""
                modules = {f"{package}.{alias.name}" for alias in node.names} & paths.keys()
                graph[module].update(modules or {package} & paths.keys())
    return {module: needs - {module} for module, needs in graph.items()}


def parts_of(room: str) -> dict[str, set[str]]:
    """The parts of a room, which are its folders and modules, and what each imports of the others."""
    parts: dict[str, set[str]] = {}
    for module, needs in module_graph().items():
        if module.startswith(f"{room}."):
            part = module.removeprefix(f"{room}.").partition(".")[0]
            others = {need.removeprefix(f"{room}.").partition(".")[0] for need in needs if need.startswith(f"{room}.")}
            parts.setdefault(part, set()).update(others - {part})
    return parts


def test_modules_import_in_no_circle() -> None:
    assert list(TopologicalSorter(module_graph()).static_order())  # raises CycleError, which names the circle


@pytest.mark.parametrize(
    "room", sorted({module.rpartition(".")[0] for module in modules_by_name() if module.count(".")})
)
def test_the_parts_of_a_room_import_in_no_circle(room: str) -> None:
    assert list(TopologicalSorter(parts_of(room)).static_order())


def test_the_queue_does_not_name_the_worker_in_a_string_either() -> None:
    for path in files("thothy_ai/queue"):
        assert "thothy_ai.worker" not in path.read_text(encoding="utf-8"), path


ENGINE = "thothy_ai.engine"
BOUNDARY = {  # a step is plain data: neither side of it may know the other
    "engine/scheduling": [f"{ENGINE}.execution", f"{ENGINE}.core", f"{ENGINE}.models", "thothy_ai.kernels", "torch"],
    "engine/execution": [f"{ENGINE}.scheduling", f"{ENGINE}.core", f"{ENGINE}.api.core"],
    "engine/api/step.py": [*(f"{ENGINE}.{part}" for part in ("scheduling", "execution", "core", "api.core")), "torch"],
}


@pytest.mark.parametrize("side", BOUNDARY)
def test_scheduling_and_execution_share_only_the_step(side: str) -> None:
    for path in [ROOT / side] if side.endswith(".py") else files(side):
        for name in imports(path):
            assert not any(within(name, other) for other in BOUNDARY[side]), f"{path}: {name}"


def test_the_service_uses_the_engine_through_its_doors_only() -> None:
    for path in files("thothy_ai"):
        if MEASURES_THE_ENGINE in path.parents:
            continue
        for name in imports(path):
            assert not within(name, "thothy_ai.kernels"), f"{path}: {name}"
            if within(name, "thothy_ai.engine") and name != "thothy_ai.engine":
                assert any(within(name, door) for door in ENGINE_DOORS), f"{path}: {name}"


@pytest.mark.parametrize("folder", ["engine", "kernels", "thothy_ai/bench"])
def test_the_engine_stands_without_the_service_s_libraries(folder: str) -> None:
    for path in files(folder):
        if MEASURES_THE_SERVICE in path.parents:
            continue
        for name in imports(path):
            assert not any(within(name, library) for library in ENGINE_ALONE), f"{path}: {name}"


@pytest.mark.parametrize("folder", ["thothy_ai", "jobs", "engine", "kernels", "migrations", "tests", "benchmarks"])
def test_nothing_imports_the_bare_names(folder: str) -> None:
    for path in files(folder):
        for name in imports(path):
            assert name.partition(".")[0] not in FOLDERS, f"{path}: {name}"


def test_transformers_does_not_take_our_folder_for_the_kernels_library() -> None:
    """Run from the repository's root, where `import kernels` would find our folder."""
    code = (
        "from transformers.utils import import_utils as u;"
        "print(u.is_kernels_available()); import transformers; print(transformers.AutoConfig.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "AutoConfig"]


@pytest.mark.parametrize(
    "module", ["thothy_ai", "thothy_ai.jobs", "thothy_ai.producer", "thothy_ai.engine.serving.client"]
)
def test_a_producer_imports_neither_torch_nor_celery(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_process_that_runs_kinds_code_imports_no_database() -> None:
    """Such processes are started again whenever a kind hangs: what they import is paid each time."""
    heavy = [*HEAVY, "sqlalchemy", "psycopg", "redis", "prometheus_client"]
    code = f"import sys, thothy_ai.plans.judge_process; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_lines_of_sql_are_as_short_as_those_of_python() -> None:
    for path in (ROOT / "thothy_ai" / "db" / "sql").rglob("*.sql"):
        assert max(map(len, path.read_text(encoding="utf-8").splitlines())) <= 120, path
