"""Translates the names of a GGUF file's tensors to transformers', and back."""

from __future__ import annotations

import re
from collections.abc import Sequence

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.models import FAMILIES
from thothy_ai.engine.models.gguf_names import GGUF_SCORES, GGUF_SIGMOID, GGUF_SOFTMAX, GGUFNames, Joined
from thothy_ai.engine.weights.gguf.file import GGUFFile

# By architecture, whether files have experts and windows, and how experts are scored: Mixtral's files have Llama's
# architecture, and OLMo 3's have OLMo 2's.
_NAMES = {
    (name, bool(names.experts), names.windowed, names.implied.get(GGUF_SCORES)): names
    for family in FAMILIES.values()
    if (names := family.gguf)
    for name in (names.architecture, *names.aliases)
}
ARCHITECTURES = tuple(dict.fromkeys(architecture for architecture, *_ in _NAMES))

ROPE_FACTORS = "rope_freqs.weight"
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
_SETTINGS = {ROPE_FACTORS, LONG_FACTORS, SHORT_FACTORS}  # tensors that are part of the configuration
_TOP = {"token_embd": "model.embed_tokens", "output": "lm_head"}
_PAIRS = ("attn_k.", "attn_k_norm.", "attn_v.")  # ignored, or missing, in layers that read another layer's cache
_SIGMOID_UNSAID = {(47, 154_880), (48, 154_880)}  # layers and vocabulary by which llama.cpp knows GLM-4.7-Flash
_LAYER = re.compile(r"blk\.(\d{1,9})\.(.*)")


def names_of(file: GGUFFile) -> GGUFNames:
    """The names of the file's architecture, which must be one of ARCHITECTURES."""
    sparse, windowed = bool(file.get(".expert_count", int)), file.holds(".attention.sliding_window")
    found = {key: names for key, names in _NAMES.items() if key[0] == file.architecture}
    best = max((key[1] == sparse, key[2] == windowed) for key in found)
    alike = [names for key, names in found.items() if (key[1] == sparse, key[2] == windowed) == best]
    return alike[0] if len(alike) == 1 else _by_scores(file, alike)


def _by_scores(file: GGUFFile, alike: Sequence[GGUFNames]) -> GGUFNames:
    """The names of the family that scores experts as the file says; files of DeepSeek-V2 do not say it."""
    scores = file.get(GGUF_SCORES, int, GGUF_SOFTMAX)
    if not file.holds(GGUF_SCORES) and any(name.endswith("exp_probs_b.bias") for name in file.names):
        if (file.positive(".block_count"), file.shape("token_embd.weight")[0]) not in _SIGMOID_UNSAID:
            key = file.architecture + GGUF_SCORES
            raise UnsupportedModelError(f"{file.path}: without {key} it is not known how experts are scored")
        scores = GGUF_SIGMOID
    for names in alike:
        if names.implied[GGUF_SCORES] == scores:
            return names
    raise UnsupportedModelError(f"{file.path}: {file.architecture}{GGUF_SCORES} {scores} is not implemented")


def model_type_of(file: GGUFFile) -> str:
    """The first family whose files have these names: files of Mistral are read as Llama."""
    names = names_of(file)
    return next(name for name, family in FAMILIES.items() if family.gguf == names)


def num_layers(file: GGUFFile) -> int:
    """The number of layers without those that predict further tokens; ModelLoadError if the file has fewer or more."""
    numbers = {int(found[1]) for name in file.names if (found := _LAYER.match(name))}
    count, declared, key = max(numbers, default=-1) + 1, file.positive(".block_count"), names_of(file).further_layers
    further = 0 if key is None else file.get(key, int, 0)
    if not 0 <= further < declared:
        raise ModelLoadError(f"{file.path}: {further} of {declared} layers predict further tokens")
    if count < declared - further:
        raise ModelLoadError(f"{file.path}: block_count is {declared}, but the tensors of layer {count} are missing")
    if count > declared:
        raise ModelLoadError(f"{file.path}: block_count is {declared}, but there are tensors of layer {count - 1}")
    return declared - further


def kv_heads(file: GGUFFile) -> tuple[int, tuple[int, ...]]:
    """The KV heads of layers that have some, and of each layer if the file lists them; ModelLoadError as `by_layer`."""
    return by_layer(file, ".attention.head_count_kv", file.positive(".attention.head_count"))


def by_layer(file: GGUFFile, key: str, default: int) -> tuple[int, tuple[int, ...]]:
    """The number at a key, and each layer's number if the file lists them; ModelLoadError if they are invalid.

    Listed numbers are all the same or 0. In an architecture whose layers can differ, the result is the first number.
    """
    match file.get(key, object):
        case None:
            return default, ()
        case int(number) if number > 0 and not isinstance(number, bool):
            return number, ()
        case list(said) if len(some := {*said} - {0}) == 1 and all(type(each) is int for each in said):
            return some.pop(), tuple(said)
        case list(said) if names_of(file).uneven and all(type(each) is int and each > 0 for each in said) and said:
            return said[0], tuple(said)
        case other:
            raise ModelLoadError(f"{file.path}: metadata {file.architecture + key!r} is {repr(other)[:200]}")


def tensors_read(file: GGUFFile) -> list[str]:
    """The tensors that the model consists of, in file order."""
    layers, sharing, read = num_layers(file), names_of(file).sharing, []
    own = layers if sharing is None else layers - file.get(sharing, int, 0)
    for name in file.names:
        found = _LAYER.match(name)
        needless = found is not None and int(found[1]) >= own and found[2].startswith(_PAIRS)
        if name not in _SETTINGS and not needless and (found is None or int(found[1]) < layers):
            read.append(name)
    return read


def stack_of(file: GGUFFile, name: str) -> str | None:
    """The name, within a layer, of transformers' stack that has this tensor's rows; None if there is none."""
    part = name.split(".")[-2]
    return next((stack for stack, parts in names_of(file).stacks.items() if part in parts), None)


def has_all_experts(file: GGUFFile, name: str) -> bool:
    """Whether a tensor has the matrices of all experts of a layer, which are separate tensors in transformers."""
    return name.split(".")[-2] in names_of(file).experts


def transformers_names(file: GGUFFile, name: str) -> list[str]:
    """transformers' name of a tensor, or one for each expert; UnsupportedModelError for an unknown tensor."""
    names, found = names_of(file), _LAYER.fullmatch(name)
    part, _, end = (found[2] if found else name).rpartition(".")
    top = {**_TOP, **names.top}
    if found is None and part in top and end == "weight":
        return [f"{top[part]}.weight"]
    if found is None:
        raise _no_place(file, name)
    prefix = f"model.layers.{found[1]}."
    if found[2] in names.whole:
        return [prefix + names.whole[found[2]]]
    if end not in {"weight", "bias"}:
        raise _no_place(file, name)
    if part in names.all_of_layer:
        return [f"{prefix}{names.all_of_layer[part]}.{end}"]
    if (stack := stack_of(file, name)) is not None:
        return [prefix + stack + ("_bias" if end == "bias" else "")]
    if part in names.experts:
        count, shape = file.positive(".expert_count"), file.shape(name)
        if len(shape) != 3 or shape[0] != count:
            raise ModelLoadError(f"{file.path}: tensor {name!r} has shape {shape}, the metadata wants {count} experts")
        form = f"{prefix}{names.experts[part]}.{end}"
        return [form.format(expert) for expert in range(count)]
    raise _no_place(file, name)


def _no_place(file: GGUFFile, name: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{file.path}: tensor {name!r} has no place in architecture {file.architecture!r}")


def places_of(file: GGUFFile, name: str) -> list[str]:
    """The names of the file's tensors that hold a tensor of transformers, or rows of it."""
    names = names_of(file)
    stem, _, end = name.rpartition(".")
    top = {theirs: ours for ours, theirs in {**_TOP, **names.top}.items()}
    if stem in top:
        return [f"{top[stem]}.{end}"]
    _, _, layer, rest = name.split(".", 3)
    prefix = f"blk.{layer}."
    whole = {theirs: ours for ours, theirs in names.whole.items()}
    if rest in whole:
        return [prefix + whole[rest]]
    if (stack := rest.removesuffix("_bias")) in names.stacks:
        end = "weight" if stack == rest else "bias"
        return [f"{prefix}{part}.{end}" for part in names.stacks[stack]]
    form = re.sub(r"\.experts\.\d+\.", ".experts.{}.", rest.rpartition(".")[0])
    if form in names.joined:
        sets: Sequence[Sequence[str]] = names.joined[form].parts
    else:
        sets = [[ours] for ours, theirs in {**names.layer, **names.experts}.items() if theirs == form]
    found = (parts for parts in sets if f"{prefix}{parts[0]}.{end}" in file.names)
    return [f"{prefix}{part}.{end}" for part in next(found, sets[0])]


def joined_of(file: GGUFFile, name: str) -> Joined | None:
    """How this tensor is joined with others to a tensor of transformers; None if it is not joined."""
    part = name.split(".")[-2]
    every = names_of(file).joined.values()
    return next((joined for joined in every if any(part in parts for parts in joined.parts)), None)
