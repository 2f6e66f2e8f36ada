"""What transformers makes of a model with an adapter merged into its weights, and whether the engine makes the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.engine_driver import EngineDriver
from tests.support.loading import load_model
from tests.support.oracle import NEW_TOKENS, Tokens, continued, random_prompts
from tests.support.peft_folders import adapter_tensors, merged, write_adapter
from tests.support.tiny_models import reference_model, tiny_model
from thothy_ai.engine.api import EngineStats, FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest, OnEvents
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")


@dataclass
class AdapterOracle:
    """A model, adapters by name, prompts, and transformers' greedy continuations of them by adapter ("" for none)."""

    loaded: LoadedModel
    folder: Path
    adapters: Mapping[str, Path]
    prompts: tuple[Tokens, ...]
    _expected: dict[str, tuple[Tokens, ...]] = field(default_factory=dict)

    def expected(self, adapter: str) -> tuple[Tokens, ...]:
        if adapter not in self._expected:
            model = reference_model(self.folder)
            if adapter:
                model.load_state_dict(merged(model.state_dict(), self.adapters[adapter]))
            self._expected[adapter] = continued(model, self.prompts, NEW_TOKENS)
        return self._expected[adapter]

    def activated(self, adapter: str, prompt: Tokens, first: int) -> Tokens:
        """What the base continues a prompt with, if from token `first` on it has the adapter's weights: each token is
        computed by both, and transformers' own layers add the difference where it belongs.
        """
        model = reference_model(self.folder)
        if adapter:
            _add_from(model, self.adapters[adapter], first)
        return continued(model, (prompt,), NEW_TOKENS)[0]

    def check(
        self, options: EngineOptions, names: Sequence[str], *, build: Callable[..., EngineCore] = build_core
    ) -> EngineStats:
        """Run prompt i with the adapter names[i % len(names)], and compare token for token."""
        sampling = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
        requests = [
            CoreRequest(str(index), prompt, sampling, adapter=names[index % len(names)])
            for index, prompt in enumerate(self.prompts)
        ]
        with EngineDriver(lambda on_events: self.core(options, on_events, build)) as driver:
            outcome = driver.run(requests)
            stats = driver.core.stats()
        for index, request in enumerate(requests):
            wanted = self.expected(request.adapter)[index]
            assert tuple(outcome.tokens[request.id]) == wanted, f"prompt {index}, adapter {request.adapter!r}"
            assert outcome.finished[request.id].reason is FinishReason.LENGTH
        return stats

    def core(
        self, options: EngineOptions, on_events: OnEvents, build: Callable[..., EngineCore] = build_core
    ) -> EngineCore:
        """A core, not started, that has loaded the adapters."""
        core = build(self.loaded, options, on_events)
        for name, folder in self.adapters.items():
            load_before_start(core, name, folder)
        return core


def _add_from(model: nn.Module, folder: Path, first: int) -> None:
    """Have a model's layers add an adapter to the tokens from `first` on: the rest of a prompt, and those after it."""
    before = {name: module.weight for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    after = merged({f"{name}.weight": weight.detach() for name, weight in before.items()}, folder)

    def hook(delta: Tensor) -> Callable[..., Tensor]:
        def add(_: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
            added = given[0] @ delta.t()
            if given[0].shape[-2] > 1:  # a prompt; later tokens come one by one
                added[..., :first, :] = 0
            return out + added

        return add

    for name, module in model.named_modules():
        if name in before and not torch.equal(after[f"{name}.weight"], before[name]):
            module.register_forward_hook(hook(after[f"{name}.weight"] - before[name].detach()))


def load_before_start(core: EngineCore, name: str, folder: Path) -> None:
    """Load an adapter into a core whose thread does not run yet. Raises what it is refused with."""
    loading = core.load_adapter(name, str(folder))
    reading = core._adapters._reader.submit(lambda: None)  # done once the folder is read
    reading.result()
    core._requests.take(wait=False)
    loading.result(timeout=0)


def adapter_oracle(
    family: str,
    folder: Path,
    adapters: Mapping[str, Mapping[str, Any]] | None = None,
    device: torch.device = CPU,
    **overrides: Any,
) -> AdapterOracle:
    """A small random model of a family, and adapters of all its linear layers that can have one; with these fields."""
    model = tiny_model(family, folder / "model", **overrides)
    loaded = load_model(model, device=device, dtype=torch.float32, cache_dir=None)
    folders = {}
    adapters = {"one": {}, "two": {"use_rslora": True}} if adapters is None else adapters
    for seed, (name, fields) in enumerate(adapters.items(), 1):
        rank = fields.get("r", 4 * seed)
        tensors = adapter_tensors(adaptable(model), rank, seed)
        folders[name] = write_adapter(folder / name, tensors, **{"rank": rank, **fields})
    return AdapterOracle(loaded, model, folders, random_prompts(loaded.config.vocab_size))


def adaptable(folder: Path) -> dict[str, tuple[int, int]]:
    """The linear layers of transformers' model that are neither experts, routers nor the head: (out, in) by name."""
    return {
        name: (module.out_features, module.in_features)
        for name, module in reference_model(folder).named_modules()
        if isinstance(module, nn.Linear)
        and not name.endswith(("lm_head", ".gate", ".router", ".kv_b_proj"))
        and "shared_expert_gate" not in name
    }
