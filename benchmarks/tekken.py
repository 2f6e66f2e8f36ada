"""Writes Mistral's tekken vocabulary as a Hugging Face tokenizer folder: a large multilingual vocabulary, offline.

    pip download --no-deps mistral-common
    python -m benchmarks.tekken mistral_common-*.whl FOLDER

The wheel (Apache-2.0) carries 131,072 tokens: 1,000 special ones, then byte sequences in the order of their ranks.
tiktoken merges the pair whose union has the lowest rank; a byte-level BPE does the same if every split of a token into
two known tokens is one of its merges, in the order of the tokens' ranks. The chat template is a plain one.
"""

from __future__ import annotations

import base64
import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from benchmarks.command_line import CommandLine

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MEMBER = "mistral_common/data/tekken_240911.json"
BOS, EOS = "<s>", "</s>"
_NAMED = {0: "<unk>", 1: BOS, 2: EOS, 3: "[INST]", 4: "[/INST]", 17: "[SYSTEM_PROMPT]", 18: "[/SYSTEM_PROMPT]"}
CHAT_TEMPLATE = (
    "<s>{% for message in messages %}"
    "{% if message['role'] == 'system' %}[SYSTEM_PROMPT]{{ message['content'] }}[/SYSTEM_PROMPT]"
    "{% elif message['role'] == 'user' %}[INST]{{ message['content'] }}[/INST]"
    "{% else %}{{ message['content'] }}</s>{% endif %}{% endfor %}"
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = CommandLine("tekken", __doc__.partition("\n")[0])
    parser.add_argument(
        "source", type=Path, metavar="WHEEL_OR_JSON", help="mistral-common's wheel, or its tekken JSON."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="Where to write the tokenizer.")
    given = parser.parse_args(arguments)
    try:
        write(given.source, given.folder)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        parser.error(f"{given.source} cannot be converted: {error}")
    sys.stdout.write(f"{given.folder}\n")


def write(source: Path, folder: Path) -> None:
    """Convert `source` and save the tokenizer in `folder`."""
    tokenizer = convert(read(source))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)


def read(source: Path) -> dict[str, Any]:
    """The vocabulary file: JSON, or the member of a wheel."""
    if source.suffix != ".whl":
        return json.loads(source.read_text(encoding="utf-8"))
    with zipfile.ZipFile(source) as wheel:
        return json.loads(wheel.read(MEMBER))


def convert(tekken: dict[str, Any]) -> PreTrainedTokenizerFast:
    """A tokenizer of `default_vocab_size` tokens."""
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415  slow to import

    config = tekken["config"]
    special = [_NAMED.get(rank, f"<SPECIAL_{rank}>") for rank in range(config["default_num_special_tokens"])]
    words = tekken["vocab"][: config["default_vocab_size"] - len(special)]
    tokens = [base64.b64decode(word["token_bytes"]) for word in words]
    tokenizer = byte_level_bpe(special, tokens, config["pattern"])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def byte_level_bpe(special: Sequence[str], tokens: Sequence[bytes], pattern: str) -> Tokenizer:
    """`special` take the first ids, `tokens` follow in the order of their ranks; `pattern` cuts text before BPE."""
    written = [_written(token) for token in tokens]
    vocabulary = {text: id_ for id_, text in enumerate([*special, *written])}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=list(_merges(written)), ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return tokenizer


def _merges(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    known = set(tokens)
    for token in tokens:
        for cut in range(1, len(token)):
            if token[:cut] in known and token[cut:] in known:
                yield token[:cut], token[cut:]


def _written(token: bytes) -> str:
    """GPT-2's printable characters for bytes."""
    return "".join(_CHARACTERS[byte] for byte in token)


def _byte_characters() -> list[str]:
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


_CHARACTERS = _byte_characters()

if __name__ == "__main__":
    main()
