"""`EngineOptions`: every option of an engine, declared once, with its type, default, help text and limits.

The command lines are derived from it: `thothy engine` (`thothy_ai.cli.inputs.engine_flags`), where each option has an
environment variable as well, and `thothy bench` (`thothy_ai.bench.options`, which also runs where neither Typer nor
pydantic is installed).
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from enum import Enum, auto
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from thothy_ai.engine.api.errors import InvalidRequestError

VARIABLES = "THOTHY_ENGINE_"  # prefix of the options' environment variables
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class Command(Enum):
    """A command that has engine options."""

    ENGINE = auto()
    BENCH = auto()


_ENGINE = frozenset({Command.ENGINE})
_BOTH = frozenset(Command)
_FP8 = ("auto", "fp8")
_ATTENTION = ("auto", "flex")
_STATE_TYPES = ("float32", "bfloat16")
_WEIGHTS = (*_FP8, "stored")


@dataclass(frozen=True, slots=True)
class Option:
    """How an option is presented and checked. An option that no command has is set by a setting.

    `setting` names the service's setting that `thothy engine` falls back to.
    """

    help: str
    commands: frozenset[Command] = frozenset()
    metavar: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    setting: str | None = None


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of one engine. None means a default that suits the device, unless the help text says otherwise."""

    url: Annotated[
        str,
        Option(
            "Address to listen on: unix:///path, or tcp://127.0.0.1:port with THOTHY_ENGINE_TOKEN set.",
            _ENGINE,
            metavar="URL",
            setting="engine_url",
        ),
    ]
    model: Annotated[
        Path | None,
        Option("Model to load: a Hugging Face folder or a GGUF file.", _BOTH, metavar="PATH", setting="model"),
    ] = None
    device: Annotated[str, Option("Device to run on: auto, cpu, cuda or cuda:1.", _BOTH, metavar="DEVICE")] = "auto"
    tensor_parallel: Annotated[
        int,
        Option(
            "Number of GPUs that share each layer of the model, from --device on; on a CPU, of processes.",
            _ENGINE,
            metavar="N",
            minimum=1,
            maximum=16,
        ),
    ] = 1
    dtype: Annotated[
        str,
        Option("Data type: auto (bfloat16 on a GPU, float32 on a CPU) or a torch type.", _BOTH, metavar="DTYPE"),
    ] = "auto"
    weights: Annotated[
        str,
        Option(
            "Format of the weights: auto (as --dtype), fp8 (quantized at load) or stored (GGUF stays quantized).",
            _BOTH,
            choices=_WEIGHTS,
        ),
    ] = "auto"
    check_weights: Annotated[bool, Option("Refuse a model with weights that are NaN or infinite.", _BOTH)] = False
    kv_dtype: Annotated[str, Option("Data type of the KV cache: auto (as --dtype) or fp8.", _BOTH, choices=_FP8)] = (
        "auto"
    )
    attention: Annotated[
        str,
        Option(
            "What computes attention: auto (Triton on a GPU, torch on a CPU) or flex (torch's FlexAttention).",
            _BOTH,
            choices=_ATTENTION,
        ),
    ] = "auto"
    state_dtype: Annotated[
        str,
        Option("Data type of the states of recurrent layers: float32 or bfloat16.", _BOTH, choices=_STATE_TYPES),
    ] = "float32"
    kept_states: Annotated[
        int | None,
        Option(
            "Number of shared prefixes whose states are kept, in models with recurrent layers. "
            "Default: an eighth of --max-rows.",
            _BOTH,
            metavar="N",
            minimum=0,
        ),
    ] = None
    kv_tokens: Annotated[
        int | None,
        Option(
            "Size of the KV cache in tokens that all layers keep. Default: what memory allows.",
            _BOTH,
            metavar="N",
            minimum=1,
        ),
    ] = None
    memory_utilization: Annotated[
        float, Option("Fraction of GPU memory to use.", _BOTH, metavar="FRACTION", minimum=0.05, maximum=1.0)
    ] = 0.9
    max_rows: Annotated[
        int | None, Option("Maximum number of concurrent sequences.", _BOTH, metavar="N", minimum=1)
    ] = None
    token_budget: Annotated[int | None, Option("Maximum number of tokens per step.", _BOTH, metavar="N", minimum=1)] = (
        None
    )
    max_context: Annotated[
        int | None,
        Option("Maximum number of tokens per sequence, output included.", _ENGINE, metavar="N", minimum=2),
    ] = None
    block_size: Annotated[int | None, Option("Tokens per KV block.", _BOTH, metavar="N", minimum=1)] = None
    prefix_cache: Annotated[bool, Option("Reuse the KV cache of shared prefixes.", _BOTH)] = True
    overlap: Annotated[
        bool | None,
        Option("Launch each step before the results of the previous one are read. Default: on a GPU.", _BOTH),
    ] = None
    graphs: Annotated[bool | None, Option("Replay steps from CUDA graphs. Default: on a GPU.", _BOTH)] = None
    drafts: Annotated[
        bool,
        Option(
            "Compute tokens that probably come next together with the last one, where that saves time. "
            "Outputs stay the same.",
            _BOTH,
        ),
    ] = False
    threads: Annotated[int | None, Option("Number of CPU threads.", _ENGINE, metavar="N", minimum=1)] = None
    verifier: Annotated[
        Path | None,
        Option("Entailment model that verifies claims: a Hugging Face folder.", _ENGINE, metavar="FOLDER"),
    ] = None
    verifier_device: Annotated[
        str | None, Option("Device of the verifier. Default: the engine's.", _ENGINE, metavar="DEVICE")
    ] = None
    null: Annotated[bool, Option("Answer at once, without a model: for measuring the queue.", _ENGINE)] = False
    null_latency: Annotated[
        float, Option("Seconds that each answer of --null takes.", _ENGINE, metavar="SECONDS", minimum=0.0)
    ] = 0.0
    adapters: Annotated[
        tuple[str, ...],
        Option(
            "Adapter to load, a PEFT folder, and its name. May be repeated; in the variable, with spaces between them.",
            _ENGINE,
            metavar="NAME=FOLDER",
        ),
    ] = ()
    adapter_slots: Annotated[
        int | None,
        Option(
            "Most adapters on the device at once; others wait in host memory. 0 refuses adapters. Default: 8. Memory "
            "is set aside for them if this is given, or adapters are; their graphs are captured at the first load.",
            _BOTH,
            metavar="N",
            minimum=0,
            maximum=1024,
        ),
    ] = None
    adapter_rank: Annotated[
        int | None,
        Option(
            "Largest rank of an adapter. Default: that of the adapters loaded at start, and at least 16.",
            _BOTH,
            metavar="N",
            minimum=1,
            maximum=256,
        ),
    ] = None
    token: Annotated[str | None, Option("Secret that clients must present over TCP.", setting="engine_token")] = field(
        default=None, repr=False
    )  # not an argument: every account on the machine can read arguments
    metrics_host: Annotated[str, Option("Address to serve metrics on.", setting="metrics_host")] = "127.0.0.1"
    metrics_port: Annotated[int, Option("Port to serve metrics on; 0 for none.", setting="metrics_port")] = 0
    name: Annotated[str | None, Option("Name, the same after a restart.", setting="engine_name")] = None
    model_name: Annotated[str | None, Option("Name by which jobs ask for the model.", setting="model_name")] = None
    session_id: Annotated[str | None, Option("UUID of this run, given by who records its residency.")] = None
    cache_dir: Annotated[
        Path | None, Option("Folder for converted GGUF models. Default: the user's cache.", _ENGINE, metavar="PATH")
    ] = None
    shutdown_seconds: Annotated[
        float, Option("Time limit for accepted requests at shutdown.", _ENGINE, metavar="SECONDS", minimum=0.0)
    ] = 30.0
    stall_seconds: Annotated[
        float,
        Option(
            "Time without a finished step after which a busy engine is ended as hung; less if its steps are short.",
            _ENGINE,
            metavar="SECONDS",
            minimum=1.0,
        ),
    ] = 300.0
    log_level: Annotated[str, Option("Least severe level that is logged.", choices=LOG_LEVELS, setting="log_level")] = (
        "INFO"
    )


def required_model(options: EngineOptions) -> Path:
    """The model's path; InvalidRequestError without one."""
    if options.model is None:
        raise InvalidRequestError("no model is given: name a Hugging Face folder or a GGUF file")
    return options.model


@dataclass(frozen=True, slots=True)
class Declared:
    """A field of `EngineOptions`. `kind` is its type without None; `default` is None for the required one."""

    name: str
    kind: type
    default: Any
    option: Option

    @property
    def flag(self) -> str:
        """The long option, such as `--max-rows`; a repeatable option is named in the singular."""
        name = self.name.removesuffix("s") if self.is_repeated else self.name
        return "--" + name.replace("_", "-")

    @property
    def is_repeated(self) -> bool:
        """Whether it takes several values; its environment variable separates them by spaces."""
        return self.kind is tuple

    @property
    def negation(self) -> str | None:
        """The flag that switches it off; None if it is not a switch, or off by default."""
        return f"--no-{self.flag[2:]}" if self.kind is bool and self.default is not False else None

    @property
    def variable(self) -> str:
        """The environment variable that the option is read from: its setting's, if it has one."""
        setting = self.option.setting
        return f"THOTHY_{setting.upper()}" if setting else VARIABLES + self.name.upper()


def engine_variables() -> tuple[str, ...]:
    """The environment variables of those options of `thothy engine` that are not settings of the service."""
    return tuple(declared.variable for declared in options_of(Command.ENGINE) if not declared.option.setting)


def options_of(command: Command) -> tuple[Declared, ...]:
    """The options that a command has."""
    return tuple(declared for declared in all_options() if command in declared.option.commands)


@cache
def all_options() -> tuple[Declared, ...]:
    """Every option, in the order of the declaration."""
    hints = get_type_hints(EngineOptions, include_extras=True)
    declared = []
    for field_ in fields(EngineOptions):
        annotation, option = get_args(hints[field_.name])
        if get_origin(annotation) is tuple:  # of texts
            kinds = [tuple]
        else:
            kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        default = None if field_.default is MISSING else field_.default
        declared.append(Declared(field_.name, kinds[0] if kinds else annotation, default, option))
    return tuple(declared)
