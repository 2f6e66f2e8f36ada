"""A copy of a GGUF file whose metadata extends the model's context by YaRN (Peng et al., 2023), without training.

    python -m benchmarks.extended smollm2-32k.gguf --factor 4      the bundled model, of 8,192 tokens, for 32,768

`thothy engine`, `thothy eval --model` and llama.cpp read the extension from the file. It is for measurements that no
model at hand has the context for: measure first what it costs (`benchmarks.kv_budget_losses`).
"""

from __future__ import annotations

from pathlib import Path

import gguf

from benchmarks.command_line import CommandLine, positive
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.weights.gguf.file import GGUFFile
from thothy_ai.engine.weights.gguf.names import LONG_FACTORS, ROPE_FACTORS

_ARCHITECTURE, _CONTEXT, _SCALING = "general.architecture", ".context_length", ".rope.scaling."


def write_extended(source: Path, path: Path, factor: float) -> int:
    """Write the copy, and return the tokens of its context. ModelLoadError for a file that is extended already."""
    file = GGUFFile(source)
    if file.parts > 1:
        raise ModelLoadError(f"{source}: one of {file.parts} parts; join them first with llama.cpp's gguf-split")
    for name in (*file.unread, *file.names):
        if name.startswith(_SCALING) or name in {ROPE_FACTORS, LONG_FACTORS}:
            raise ModelLoadError(f"{source}: has a scaling of its own, {name.lstrip('.')}")
    original = file.positive(_CONTEXT)
    context = int(original * factor)
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, file.architecture)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in {_ARCHITECTURE, file.architecture + _CONTEXT}:
            writer.add_key_value(field.name, field.contents(), field.types[0], (field.types[1:] or [None])[-1])
    writer.add_context_length(context)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(factor)
    writer.add_rope_scaling_orig_ctx_len(original)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return context


def main() -> None:
    """Write the copy of one file."""
    line = CommandLine("extended", __doc__)
    line.add_argument("path", type=Path, help="of the copy")
    line.add_argument("--model", type=Path, help="GGUF file. Default: the bundled model.")
    line.add_argument("--factor", type=positive(float), default=4.0, help="by which the context grows")
    given = line.parse_args()
    with line.checked():
        context = write_extended(given.model or bundled_model_path(), given.path, given.factor)
    print(f"{given.path}: {context:,} tokens of context")


if __name__ == "__main__":
    main()
