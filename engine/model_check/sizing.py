"""Plans an engine's memory from the model's configuration, and refuses what cannot fit before any weight is read."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from thothy_ai.engine.api.adapters import DEFAULT_RANK, DEFAULT_SLOTS, adapters_of
from thothy_ai.engine.api.errors import EngineError, InvalidRequestError, ModelLoadError, OutOfMemoryError, one_line
from thothy_ai.engine.api.limits import EngineConfig, held_with_budget
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.checkpoint.adapter import read_adapter_configuration
from thothy_ai.engine.execution.device import resolve_dtype, resolve_kv_dtype, resolve_state_dtype
from thothy_ai.engine.execution.host_memory import host_memory
from thothy_ai.engine.execution.mask_table import MaskTable
from thothy_ai.engine.execution.mixed_graphs import MAX_TOKENS, sizes_up_to
from thothy_ai.engine.execution.sampler import Sampler
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.layer_groups import LayerGroups
from thothy_ai.engine.models.layers.linear import packs
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.models.ranks import PlannedRanks
from thothy_ai.engine.weights.assemble import assemble
from thothy_ai.engine.weights.formats import weight_format
from thothy_ai.engine.weights.inventory import WithoutStorage
from thothy_ai.kernels.lora import MAX_SPLITS

_CPU_KV_TOKENS = 16_384
_LENGTHS = (2_000, 4_000, 16_000)  # sequence lengths in tokens
EXAMPLE_BUDGET = 2_048  # tokens
_MIN_KV_TOKENS = 1024  # the smallest useful pool
_STATE_BYTES = 1 << 34  # of all rows' states, unless the options set the number of rows
_MIN_ROWS = 16  # rows for which states can exceed that
_MIN_KEPT, _ROWS_PER_KEPT = 8, 8  # kept states of prefixes that siblings share
MAX_CONTEXT = 32_768  # a larger one costs memory in every row, since rows keep their token ids on the device
_MAX_BUDGET = 8192
_STEP_WORK = 4e12  # tokens times parameters; 12 ms on an H200, about the time to launch a step without graphs
_MIN_FLEX_BLOCK, _MIN_FLEX_HEAD = 16, 16  # smallest block in tokens, and smallest head, on a GPU
_FLEX_NUMBERS = (1 << 31) - 1  # numbers in a pool of keys; torch's kernel has 32-bit offsets
_GPU_BUFFERS = 1 << 29  # bytes for attention's partial results, per kind of heads, and for CUDA graphs
_PARTIALS = 2  # per row and head: over its own tokens, and over a shared prefix
_QUANTIZED_BUFFERS = 1 << 26  # bytes for pieces of dequantized weights
_ELSEWHERE = torch.device("meta")  # a device without capabilities to ask for
GB = 1e9


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes that an engine will take, and that its device has available. `kv` is the smallest useful pool; `states` has
    all `slots` of recurrent layers.
    """

    weights: int
    kv: int
    states: int
    slots: int
    workspace: int
    available: int
    weight_type: str  # as named in the options or the checkpoint
    device: torch.device

    @property
    def needed(self) -> int:
        return self.weights + self.kv + self.states + self.workspace

    @property
    def fits(self) -> bool:
        """Whether the device has that many bytes available."""
        return self.needed <= self.available

    def require(self, name: str) -> None:
        """Raise `OutOfMemoryError`, with the numbers, unless the plan fits."""
        if self.fits:
            return
        needs = f"{self.weights / GB:.1f} GB for weights in {self.weight_type}"
        if self.weights <= self.available:
            states = f"{self.states / GB:.1f} GB for {self.slots} states, " if self.slots else ""
            rest = f"{states}{self.kv / GB:.1f} GB for the KV cache and {self.workspace / GB:.1f} GB of workspace"
            needs = f"{self.needed / GB:.1f} GB, of which {needs}, {rest}"
        where = "this machine" if self.device.type == "cpu" else str(self.device)
        raise OutOfMemoryError(f"{name} needs {needs}, and {where} has {max(0, self.available) / GB:.1f} GB available")


def plan_memory(
    model: ModelConfig, options: EngineOptions, device: torch.device, dtype: torch.dtype, memory: int | None = None
) -> MemoryPlan:
    """The plan of an engine that is not loaded yet. `memory`: the bytes of an absent device of this type.

    If several devices share the model, the plan is for each of them. UnsupportedModelError if they cannot share it.
    """
    ranks = options.tensor_parallel
    whole, model = model, model.shared_by(ranks)
    sizes = engine_sizes(model, options, device)
    if _through_flex(model, options):
        _require_flex(model, sizes, options, device)
    asked = device if memory is None else _ELSEWHERE
    kv_dtype = resolve_kv_dtype(options.kv_dtype, dtype, asked)
    if memory is not None:
        available = int(memory * options.memory_utilization)
    elif device.type != "cuda":
        available = host_memory().available
    else:
        torch.cuda.empty_cache()  # memory cached for an earlier model
        free, total = torch.cuda.mem_get_info(device)
        reserved = 0.0 if options.kv_tokens is not None else (1 - options.memory_utilization) * total
        available = int(free - reserved)
    built = _without_storage(whole, options.weights, asked, dtype, ranks)
    workspace = workspace_bytes(model, sizes, dtype, device)
    return MemoryPlan(
        weights=_held_bytes(built, asked, dtype),
        kv=KVCache.bytes_per_block(layer_groups(model, options), sizes.block_size, kv_dtype)
        * _min_blocks(sizes, options, device),
        states=state_bytes(model, sizes, options, dtype),
        slots=sizes.state_slots,
        workspace=workspace + adapter_bytes(built, sizes, options, dtype, device),
        available=available,
        weight_type=_weight_type(model, options, dtype),
        device=device,
    )


def _through_flex(model: ModelConfig, options: EngineOptions) -> bool:
    """Whether the model's attention runs through torch's FlexAttention."""
    return options.attention == "flex" or model.needs_flex


def _require_flex(model: ModelConfig, sizes: EngineConfig, options: EngineOptions, device: torch.device) -> None:
    """InvalidRequestError for a cache or heads that FlexAttention does not support."""
    if options.kv_dtype == "fp8":
        raise InvalidRequestError("FlexAttention reads no KV in fp8: use --kv-dtype auto")
    if device.type != "cuda":
        return
    size, narrowest = sizes.block_size, min(heads.size for heads in filter(None, model.attended))
    if size < _MIN_FLEX_BLOCK or size & (size - 1):
        raise InvalidRequestError(f"FlexAttention reads no blocks of {size} tokens: use --block-size 16, 32 or 64")
    if narrowest < _MIN_FLEX_HEAD:
        remedy = "--device cpu" if model.needs_flex else "--attention auto"
        raise InvalidRequestError(
            f"on a GPU, FlexAttention computes heads of {_MIN_FLEX_HEAD} numbers or more, and the model has heads of "
            f"{narrowest}: use {remedy}"
        )
    most = max_blocks(model, sizes, options, device)
    if _min_blocks(sizes, options, device) > most:
        tokens = (most - 1) // len(sizes.windows) * size
        raise InvalidRequestError(
            f"FlexAttention reads at most {tokens} tokens of this model on a GPU, and --kv-tokens is "
            f"{options.kv_tokens}: use --kv-tokens {tokens}"
        )


def max_blocks(model: ModelConfig, sizes: EngineConfig, options: EngineOptions, device: torch.device) -> int:
    """The most blocks, including the dummy, that attention can address, whatever the memory; layers that share a block
    count together.
    """
    if device.type != "cuda" or not _through_flex(model, options):
        return sys.maxsize
    widest = max(room.numbers for room in layer_groups(model, options).rooms().values())
    return _FLEX_NUMBERS // (sizes.block_size * widest)


class KVLeft(NamedTuple):
    """Tokens whose KV fits next to a plan's weights and workspace, if every layer keeps all of them; bytes per token.

    `by_length`: if windows give memory back, how many tokens fit, by the length of sequences. `budgeted`: how many
    sequences with a KV budget of `budget` tokens fit, whatever their length; `keeps_all`: why they cannot have one.
    """

    tokens: int
    bytes_per_token: float
    by_length: tuple[tuple[int, int], ...]
    budget: int
    budgeted: int
    keeps_all: str


def kv_left(plan: MemoryPlan, model: ModelConfig, options: EngineOptions, dtype: torch.dtype) -> KVLeft:
    """The memory that the plan leaves for KV."""
    model = model.shared_by(options.tensor_parallel)
    sizes = engine_sizes(model, options, plan.device)
    kv_dtype = resolve_kv_dtype(options.kv_dtype, dtype, _ELSEWHERE)
    per_block = KVCache.bytes_per_block(layer_groups(model, options), sizes.block_size, kv_dtype)
    blocks = max(0, plan.available - plan.weights - plan.states - plan.workspace) // per_block
    blocks = min(blocks, max_blocks(model, sizes, options, plan.device))
    sizes = replace(sizes, num_blocks=max(sizes.num_blocks, blocks))
    lengths = [each for each in _LENGTHS if each <= sizes.max_context] if any(sizes.windows) else []
    held = ((length, (blocks - 1) // sizes.most_blocks(length, 1) * length) for length in lengths)
    tokens = sizes.pool_tokens if blocks else 0
    budget = max(EXAMPLE_BUDGET, sizes.min_kv_budget)
    most = tokens // held_with_budget(budget, sizes.block_size)
    budgeted = 0 if sizes.keeps_all else min(sizes.max_rows, most)
    per_token, by_length = len(sizes.windows) * per_block / sizes.block_size, tuple(held) if blocks else ()
    return KVLeft(tokens, per_token, by_length, budget, budgeted, sizes.keeps_all)


def state_bytes(model: ModelConfig, sizes: EngineConfig, options: EngineOptions, dtype: torch.dtype) -> int:
    """Bytes of all slots of a model's states; `dtype` is the type of its activations."""
    return sizes.state_slots * KVCache.bytes_per_slot(model, dtype, resolve_state_dtype(options.state_dtype))


def _weight_type(model: ModelConfig, options: EngineOptions, dtype: torch.dtype) -> str:
    made = "fp8" if options.weights == "fp8" else str(dtype).removeprefix("torch.")
    if model.quantization is None:
        return made
    method = model.quantization.method
    if model.quantization.mxfp4_experts:
        return f"{method if model.quantization.rules else made}, experts in mxfp4"
    return f"{method}, experts in {made}" if model.experts and model.quantization.dense_experts else method


def weight_bytes(model: ModelConfig, weights: str, device: torch.device, dtype: torch.dtype, ranks: int = 1) -> int:
    """Bytes of the model's weights on one of `ranks` devices, measured by building the model with tensors without
    storage.
    """
    return _held_bytes(_without_storage(model, weights, device, dtype, ranks), device, dtype)


def _without_storage(model: ModelConfig, weights: str, device: torch.device, dtype: torch.dtype, ranks: int) -> Model:
    form = weight_format(weights, device)
    try:
        return assemble(model, WithoutStorage(dtype), form, ranks=None if ranks == 1 else PlannedRanks(ranks))
    except EngineError:
        raise
    except Exception as error:  # sizes can overflow or contradict each other in many ways
        raise ModelLoadError(f"no model can be built from its configuration: {one_line(error)}") from error


def _held_bytes(built: Model, device: torch.device, dtype: torch.dtype) -> int:
    held = built.num_bytes
    if built.config.tied_embeddings and packs(device, dtype):
        held += built.decoder.table.nbytes  # the head's packed copy
    return held


def engine_sizes(model: ModelConfig, options: EngineOptions, device: torch.device) -> EngineConfig:
    """Sizes by the options, or defaults for the device where an option is None; the pool is sized later."""
    on_gpu, groups = device.type == "cuda", layer_groups(model, options)
    if model.latent is not None:
        _require_latent(options)
    if options.drafts and model.recurrent:
        raise InvalidRequestError(
            "--drafts: the model has recurrent layers, whose states a wrong draft would change; start it without",
            "drafts",
        )
    if options.drafts and (options.adapters or options.adapter_slots or options.tensor_parallel > 1):
        raise InvalidRequestError(
            "--drafts: not possible together with adapters or --tensor-parallel; start it without one of them", "drafts"
        )
    rows = options.max_rows or _usual_rows(model, options, device)
    kept = max(_MIN_KEPT, rows // _ROWS_PER_KEPT) if options.kept_states is None else options.kept_states
    return EngineConfig(
        block_size=options.block_size or (32 if on_gpu else 16),
        num_blocks=1 + len(groups.windows),
        max_rows=rows,
        token_budget=options.token_budget or (_gpu_budget(model, rows) if on_gpu else 512),
        max_context=min(options.max_context or MAX_CONTEXT, model.max_context),
        prefix_cache=options.prefix_cache,
        overlap=on_gpu if options.overlap is None else options.overlap,
        graphs=on_gpu if options.graphs is None else options.graphs,
        drafts=options.drafts,
        windows=groups.windows,
        chunked=model.chunked,
        recurrent=model.recurrent,
        kept_states=kept if model.recurrent and options.prefix_cache else 0,
        keeps_all=_why_all_is_kept(model, options),
        adapter_slots=DEFAULT_SLOTS if options.adapter_slots is None else options.adapter_slots,
        adapter_rank=options.adapter_rank or _adapter_rank(options),
    )


def _why_all_is_kept(model: ModelConfig, options: EngineOptions) -> str:
    """Why a sequence cannot have a KV budget; empty if it can."""
    context = min(options.max_context or MAX_CONTEXT, model.max_context)
    if model.recurrent:
        return "the model has recurrent layers, which keep states instead"
    if any(window is not None and window < context for window in model.architecture.windows):
        return "layers of the model have windows, which drop blocks by themselves"
    if model.latent is not None:
        return "the model keeps latents instead of keys and values"
    if _through_flex(model, options):
        return "FlexAttention takes a token's place among the kept ones for its position"
    if options.tensor_parallel > 1:
        return "several devices share the model, and each knows only the importance of its own heads"
    return ""


def _require_latent(options: EngineOptions) -> None:
    """InvalidRequestError for options that models with latents do not support yet."""
    if options.kv_dtype == "fp8":
        raise InvalidRequestError("the model keeps latents, which are not kept in fp8: use --kv-dtype auto", "kv_dtype")
    if options.attention == "flex":
        raise InvalidRequestError("FlexAttention computes no attention to latents: use --attention auto", "attention")


def _adapter_rank(options: EngineOptions) -> int:
    """The largest rank of the adapters to load at start, or the default."""
    ranks = (read_adapter_configuration(folder).max_rank for folder in adapters_of(options.adapters).values())
    return max(DEFAULT_RANK, *ranks, 0)


def adapter_bytes(
    model: Model, sizes: EngineConfig, options: EngineOptions, dtype: torch.dtype, device: torch.device
) -> int:
    """Bytes for all slots and for steps with adapters, if the options ask for adapters; 0 otherwise, and room is then
    made for the first adapter if memory is left.
    """
    if not sizes.adapter_slots or (options.adapter_slots is None and not options.adapters):
        return 0
    budget, bank = sizes.token_budget, model.adapters
    taken = sizes.adapter_slots * bank.numbers_per_slot(sizes.adapter_rank) * dtype.itemsize
    taken += MAX_SPLITS * budget * bank.widest_low(sizes.adapter_rank) * torch.float32.itemsize
    if device.type == "cuda" and sizes.graphs and budget <= MAX_TOKENS:  # each size's residual stream again
        taken += sum(sizes_up_to(budget)) * model.config.hidden_size * dtype.itemsize
    return taken


def layer_groups(model: ModelConfig, options: EngineOptions) -> LayerGroups:
    """The groups of the model's layers for the served context length."""
    return model.within(options.max_context or MAX_CONTEXT).layer_groups


def _usual_rows(model: ModelConfig, options: EngineOptions, device: torch.device) -> int:
    """The default number of rows, lowered if their states would take too much of the device."""
    rows, dtype = 1024 if device.type == "cuda" else 64, resolve_dtype(options.dtype, device)
    per_row = KVCache.bytes_per_slot(model, dtype, resolve_state_dtype(options.state_dtype))
    while rows > _MIN_ROWS and rows * per_row > _STATE_BYTES:
        rows //= 2
    return rows


def _gpu_budget(model: ModelConfig, rows: int) -> int:
    """Tokens per step: the fewest that keep the device busy while the host launches a step, so that prefill is spread
    over many decoding steps. If prefill ended early, later steps would read all weights for few tokens.
    """
    parameters = model.hidden_size * (model.mixer_width + 3 * model.active_inner)
    return min(_MAX_BUDGET, max(int(_STEP_WORK / parameters), rows) // 256 * 256 + 256)


def workspace_bytes(model: ModelConfig, sizes: EngineConfig, dtype: torch.dtype, device: torch.device) -> int:
    """Bytes for the largest step's activations, logits and rows; generous, since memory fragments."""
    activations = sizes.token_budget * (6 * model.hidden_size + 4 * model.widest_inner) * dtype.itemsize
    # Around a recurrence: projections and convolutions, its inputs in float32, and its chunks' systems of equations.
    widest = max((3 * each.channels + 5 * each.heads * each.values for each in model.states if each), default=0)
    activations += sizes.token_budget * widest * dtype.itemsize
    if model.experts is not None:  # the results of each of a token's experts, before their sum
        activations += sizes.token_budget * model.experts.top_k * model.hidden_size * dtype.itemsize
    copies = 3 if sizes.graphs else 2  # a step's and the next one's; with graphs, the copy to their buffer
    logits = copies * sizes.max_rows * model.vocab_size * dtype.itemsize
    drawing = Sampler.workspace_bytes(sizes.max_rows, model.vocab_size, device.type)
    drawing += MaskTable.num_bytes(sizes.max_rows, model.vocab_size)
    tables = len(sizes.windows) * -(-sizes.max_context // sizes.block_size)
    rows = sizes.max_rows * (sizes.max_context + tables) * 4
    if device.type == "cuda":
        mixed, budget = 0, sizes.token_budget
        if sizes.graphs and budget <= MAX_TOKENS:  # queries, attention's results, each size's residual stream
            kept = 2 * budget * model.num_heads * model.widest_head + sum(sizes_up_to(budget)) * model.hidden_size
            mixed = kept * dtype.itemsize
        pieces = 0 if model.quantization is None else _QUANTIZED_BUFFERS
        buffers = (1 + len(model.other_heads)) * _GPU_BUFFERS
        if model.latent is not None:  # its partial results, a latent per head, don't fit into those buffers
            buffers += _PARTIALS * sizes.max_rows * model.num_heads * model.latent.rank * torch.float32.itemsize
        return 2 * activations + logits + drawing + rows + mixed + pieces + buffers
    gathered = 8 * sizes.max_context * model.num_heads * model.widest_head * 4
    return 2 * (activations + gathered) + logits + drawing + rows


def num_blocks(
    per_block: int,
    workspace: int,
    states: int,
    most: int,
    sizes: EngineConfig,
    options: EngineOptions,
    device: torch.device,
) -> int:
    """The number of blocks of the pool, including the dummy, at most `most`; each takes `per_block` bytes. The weights
    are on the device already, but the bytes of `states` are not.
    """
    if options.kv_tokens is not None or device.type != "cuda":
        return _min_blocks(sizes, options, device)
    torch.cuda.empty_cache()  # memory cached while the weights were loaded
    free, total = torch.cuda.mem_get_info(device)
    room = free - (1 - options.memory_utilization) * total - workspace - states
    blocks = min(int(room // per_block), most)
    if blocks // len(sizes.windows) * sizes.block_size < min(sizes.max_context, _MIN_KV_TOKENS):
        raise OutOfMemoryError(
            f"{free / GB:.1f} of {total / GB:.1f} GB are free beside the weights; at a memory utilization of "
            f"{options.memory_utilization:.2f}, {workspace / GB:.1f} GB of workspace and {states / GB:.1f} GB for "
            f"{sizes.state_slots} states, {max(blocks, 0)} KV blocks of {per_block / 1e6:.2f} MB fit"
        )
    return blocks


def _min_blocks(sizes: EngineConfig, options: EngineOptions, device: torch.device) -> int:
    """The fewest blocks, including the dummy: for the options' tokens, or for the device's smallest useful pool."""
    default = _CPU_KV_TOKENS if device.type != "cuda" else min(sizes.max_context, _MIN_KV_TOKENS)
    tokens = default if options.kv_tokens is None else options.kv_tokens
    return max(1, -(-tokens // sizes.block_size)) * len(sizes.windows) + 1


def check_room(planned: int, wanted: int, device: torch.device) -> None:
    """OutOfMemoryError if `wanted`, the part of the `planned` bytes that is not allocated yet, exceeds the free memory.

    Checked beforehand since a CPU's allocator can overcommit, and does not raise torch.OutOfMemoryError.
    """
    available, total = torch.cuda.mem_get_info(device) if device.type == "cuda" else host_memory()
    if planned > total or wanted > available:
        raise OutOfMemoryError(
            f"weights, KV cache, states and workspace take {planned / GB:.1f} GB, {device} has {total / GB:.1f} GB, "
            f"of which {available / GB:.1f} GB are available beside the weights: a smaller --kv-tokens or --max-rows "
            "would fit"
        )
