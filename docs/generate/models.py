"""`models.md`: which models load. Families and formats are those that the engine has; whatever depends on a
configuration is tried while the page is written, so that the page says what the engine does."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from docs.generate.markdown import code, listed, page, paragraph, table
from docs.generate.model_cases import QUANTIZATIONS, REFUSED_FILES, REFUSED_SETTINGS, ROPES, TINY
from thothy_ai.bench.shapes import SHAPES, write_config
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.checkpoint.multimodal import CONTAINERS
from thothy_ai.engine.models import FAMILIES
from thothy_ai.engine.models.fallback import CHECKED, REFUSED
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.layer_groups import LayerGroups
from thothy_ai.engine.models.quantized.fp8 import Fp8Blocks
from thothy_ai.engine.models.quantized.gguf import BLOCK_FORMATS
from thothy_ai.engine.models.quantized.methods import read_quantization
from thothy_ai.engine.text.tokenizer import tokenizer_file
from thothy_ai.engine.weights import formats
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.gguf.file import QUANTIZATIONS as GGUF_TYPES
from thothy_ai.engine.weights.gguf.tokenizer import PRE_TOKENIZATIONS
from thothy_ai.engine.weights.shards import stored_by_name
from thothy_ai.kernels.paged import AttentionShape
from thothy_ai.kernels.triton.attention.paged_attention import PagedAttention

LOAD_FORMATS = {  # of `formats.FORMATS`
    "auto": "Weights in the model's type.",
    "fp8": "Weights and activations in fp8, quantized as each weight is loaded. The head stays plain.",
    formats.STORED: "As `auto`, but linear layers of a GGUF file stay quantized: less memory, slower on a CPU.",
}
_DETAILS = re.compile(r" \((?:known: |\{).*\)$", re.DOTALL)  # of a message: what there is, what was given
_MATRIX = "tests.support.tiny_models"  # whose families the tests of exactness run over


def models_page() -> str:
    """The page."""
    return page(
        "Models",
        "Which models load, in which formats, how that was checked, and what is refused.",
        "A model is a Hugging Face folder with safetensors, or a GGUF file. `thothy models check FOLDER_OR_GGUF` says"
        " whether a model will load,\nhow much memory it takes, and which variables its chat template has. A model that"
        " does not fit, or that the engine would compute\nincorrectly, is refused before any weight is read, and the"
        " message names the reason.",
        "## Families",
        "The `model_type` of config.json selects the family. *Checked* means that small random models of the"
        " family give the same greedy\ntokens as `transformers` in float32, and the same log-probabilities in"
        " bfloat16. The tokens are compared with and without\npreemption, chunked prefill, overlapped steps"
        " and prefix cache, and in every combination of two of these.",
        table(("`model_type`", "Checked", "GGUF", "Models"), _families()),
        "## Latent attention",
        "DeepSeek's models and GLM-4.7-Flash keep one latent per token and layer, which all heads attend to,"
        " instead of each head's keys\nand values. Several GPUs, adapters (except for `kv_b_proj`, which is"
        " dequantized when it is loaded) and drafts work as for other\nmodels; `--kv-dtype fp8` and"
        " `--attention flex` are refused. On a GPU, fewer sequences than with other models read a shared"
        "\nprefix together, since all heads are rows of one tile; if the number is 1, decoding reads the"
        " prefix for each sequence.",
        table(
            (
                "Model",
                "KiB of KV per token",
                "with each head's keys and values",
                "Sequences that read a prefix together",
            ),
            _latents(),
        ),
        "## Text parts of multimodal checkpoints",
        "Only the text part of these checkpoints is loaded, and requests cannot contain images. The text part"
        " is one of the families\nabove, or runs through `transformers`. Its logits are compared with those"
        " that `transformers` computes for text with the whole\ncheckpoint. `transformers` omits some steps"
        " that a text model applies to its logits when the model is in such a checkpoint; the\nengine applies"
        " them: the scale of Cohere (Aya Vision, Command A Vision) and of Granite (Granite Vision), and Gemma"
        " 2's soft cap.",
        table(("`model_type`", "Models"), ((code(name), each.about) for name, each in CONTAINERS.items())),
        "## Any other decoder",
        "A model in `transformers` that is none of these families runs through its `transformers` model, more"
        " slowly: `transformers`\ncomputes everything except attention, in the model's own type, with CUDA"
        " graphs if a trial capture succeeds. Continuous\nbatching, prefix cache, chunked prefill, sliding"
        " windows and grammars work as for other models. When the model is loaded, a\nforward pass without"
        " weights checks that the paged cache can serve its attention, and a pass with weights checks that"
        " sequences\ndo not affect each other.",
        "Attention with ALiBi (BLOOM, MPT, some Falcons) is computed by torch's FlexAttention, which cannot"
        " read an fp8 KV cache.\n`--attention flex` chooses FlexAttention for any other model, except models"
        " with latents and, on a GPU, models with heads of\nfewer than 16 numbers.",
        "Checked token for token, with combinations of these:",
        f"{listed(CHECKED)}.",
        "Refused, as tests check:",
        table(("`model_type`", "Message"), ((code(name), reason) for name, reason in REFUSED.items())),
        "## Rotary embedding",
        "Each `rope_type` was tried in a Llama configuration, partial rotary embedding in a Phi-3 configuration.",
        table(("Variant", "Outcome"), ((code(name), _outcome(change)) for name, change in ROPES.items())),
        "## Weights as they are stored",
        "Plain weights in float64, float32, float16 or bfloat16 are converted to the engine's `--dtype`. If"
        " the head differs from the\nembedding, the head is used even if `tie_word_embeddings` is true, as in"
        " `transformers`, with a warning. `--weights` says how\nweights are kept in memory:",
        table(("`--weights`", "What it does"), _load_formats()),
        "Checkpoints that are already quantized are recognized by their `quantization_config`. Linear layers"
        " stay quantized as they are.\nExperts in int4 or int8 are dequantized one at a time to the engine's"
        " `--dtype` when they are loaded, or quantized again by\nchannel with `--weights fp8`. Experts in"
        " fp8, and GPT-OSS's experts in MXFP4, stay as they are, except that experts in fp8\nblocks are"
        " rounded again with one scale per output, which doubles the variance of their rounding error."
        " Quantized routers are\ndequantized. In GPTQ, AWQ and packed int4 checkpoints, the folder's tensors"
        " decide which layers are plain.",
        table(("Format", "Outcome", "Experts"), map(_quantized, QUANTIZATIONS)),
        f"GGUF tensors: {listed(sorted(kind.name for kind in GGUF_TYPES))}. Tensors of other types are refused by"
        " name, and so is any\nkey of the architecture that asks for something that the engine does not compute. If a"
        " file is split (`NAME-00001-of-00003.gguf` and so\non), give the path of any part: all are read.",
        "With `--weights stored`, linear layers of the types below stay quantized, with scales in float16;"
        " the embedding and all other\ntensors are as with `auto`. If all experts of a file are in MXFP4,"
        " they stay quantized in every family; other experts are\ndequantized when the file is converted,"
        " also with `stored`.",
        "GLM-4.7-Flash's files are read as files of `deepseek_v3`. Old files of DeepSeek-V2, V3 and R1 do not"
        " say which groups their\nexperts are chosen in; they are refused, unless the model has at most 64"
        " experts.",
        table(("GGUF type", "Bits per weight, file", "Bits per weight, memory"), _block_formats()),
        "These vocabularies of GGUF files load: SentencePiece, Gemma 4, and byte-level vocabularies whose"
        f" `tokenizer.ggml.pre` is one of {listed(sorted(PRE_TOKENIZATIONS))}."
        " A file\nthat does not say how texts are split (no such key, or `default`), or that names another rule, is"
        " refused: the model would get other tokens\nthan it was trained on.",
        "## Tokenizers",
        "`tokenizer.json` is used unchanged. Without it, Mistral's `tekken.json`, or `vocab.json` with"
        " `merges.txt`, is read. If there is\nalso a `tekken.json`, `tokenizer.json` splits texts by the"
        " pattern of `tekken.json`. A tokenizer may have tokens that the model\nhas no embedding for, as long"
        " as the chat template and the beginning of a text do not use them: texts under a schema never"
        "\ncontain such tokens, and a prompt with one is refused.",
        "The chat template is read from `chat_template.jinja`, `tokenizer_config.json` (the default, if it"
        " has several named ones) or\n`chat_template.json`. A generation ends at the tokens that"
        " `generation_config.json` and `config.json` list, and at the\ntokenizer's end of text. If"
        " `generation_config.json` lists none, it also ends at what the template writes after an answer.",
        "Templates of multimodal models expect a message's content as a list of parts, most others as a"
        " string. For each role, the engine\ntries both forms. A template that renders neither is refused. If"
        " a template leaves out system messages, their text is put before\nthe next message.",
        "## Refused",
        "Examples, with the message:",
        table(("What", "Message"), _refused()),
    )


def _latents() -> Iterator[tuple[str, str, str, str]]:
    """What models with latents keep of a token in 16 bits, what they would keep with heads expanded, and how many
    sequences the kernels take at once.
    """
    bfloat16 = torch.bfloat16
    for name, config in SHAPES.items():
        if "kv_lora_rank" not in config:
            continue
        with tempfile.TemporaryDirectory() as folder:
            model = model_config(write_config(name, Path(folder)))
        latent, layers = model.latent, model.num_layers
        assert latent is not None
        kept = KVCache.bytes_per_block(LayerGroups.single(model.kept), 1, bfloat16)
        expanded = 2 * 2 * layers * model.num_heads * max(latent.query, latent.value)
        shape = AttentionShape(
            1, model.num_heads, *latent.kept[:2], 32, 32, bfloat16, bfloat16, torch.device("cpu"), latent=latent.rank
        )
        yield name, f"{kept / 1024:.1f}", f"{expanded / 1024:.0f}", f"{PagedAttention(shape).group_rows}"


def _families() -> Iterator[tuple[str, ...]]:
    matrix = importlib.import_module(_MATRIX).FAMILIES
    for name, family in FAMILIES.items():
        module = inspect.getmodule(family)
        about = paragraph(module.__doc__ if module else "")
        yield code(name), "yes" if name in matrix else "no", "yes" if family.gguf else "no", about


def _load_formats() -> Iterator[tuple[str, str]]:
    return ((code(name), LOAD_FORMATS[name]) for name in formats.FORMATS)


def _block_formats() -> Iterator[tuple[str, str, str]]:
    for name, form in BLOCK_FORMATS.items():
        offsets = form.contents(torch.zeros(1, 1, form.num_bytes, dtype=torch.uint8)).offsets is not None
        held = form.bits + 16 * (1 + offsets) / form.group
        yield name, f"{8 * form.num_bytes / form.values:g}", f"{held:g}"


def _quantized(name: str) -> tuple[str, str, str]:
    """A row: the format, and what becomes of linear layers and of experts."""
    change = QUANTIZATIONS[name]
    outcome = _outcome(change)
    if outcome != "loads":
        return name, outcome, "refused"
    found = read_quantization(change["quantization_config"])
    if found.dense_experts:
        return name, outcome, "dequantized"
    blocks = any(isinstance(rule.layout, Fp8Blocks) for rule in found.rules)
    return name, outcome, "rounded again, by output" if blocks else "stay"


def _outcome(change: Mapping[str, Any]) -> str:
    return f"refused: {message}" if (message := _message(change)) else "loads"


def _refused() -> Iterator[tuple[str, str]]:
    """Those that are still refused: what loads by now is in the tables above."""
    for what, change in REFUSED_SETTINGS.items():
        if not (message := _message(change)):
            raise RuntimeError(f"{what} is not refused any more")
        yield what, message
    for what, files in REFUSED_FILES.items():
        if message := _message_of_files(files):
            yield what, message


def _message(change: Mapping[str, Any]) -> str:
    """What the engine says about a small configuration with these values; nothing if it takes it."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "config.json").write_text(json.dumps({**TINY, **change}), encoding="utf-8")
        try:
            model_config(folder)
        except EngineError as error:
            return _DETAILS.sub("", str(error).removeprefix(f"{folder}: "))
    return ""


def _message_of_files(files: Mapping[str, str]) -> str:
    """What the engine says about a folder of these files."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, content in files.items():
            (folder / name).write_text(content, encoding="utf-8")
        try:
            tokenizer_file(folder)
            stored_by_name(folder)
        except EngineError as error:
            return str(error).replace(str(folder), "FOLDER").removeprefix("FOLDER: ")
    return ""
