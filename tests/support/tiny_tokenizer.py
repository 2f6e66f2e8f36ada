"""Small tokenizers: of the byte-level kind, with a chat template, trained here in no time; and of SentencePiece's."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEXTS = (
    'The kettle sings while the garden waits for rain; numbers 12, 34 and 567 stay. {"title":"one","points":["two"]}',
    "Die Bäume rauschen im Wind, und das Café öffnet früh. Ça va bien? 你好，世界。 Emoji: 🙂🚀 done.",
    "headline summary points count language confidence sentence paragraph",
)
CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m.role not in ('system', 'user', 'assistant') %}"
    "{{ raise_exception('unknown role ' + m.role) }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
END, START, STOP = 0, 1, 2  # <|endoftext|>, <|im_start|>, <|im_end|>


def make_tokenizer() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS * 4, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def sentence_piece(words: Sequence[str], merges: Sequence[tuple[str, str]]) -> Tokenizer:
    """Llama 2's pipeline in small: a word mark for spaces, one prepended, bytes for what the vocabulary lacks."""
    vocab = {"<unk>": 0} | {f"<0x{byte:02X}>": 1 + byte for byte in range(256)}
    vocab |= {word: 257 + place for place, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab, [*merges], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    strip = decoders.Strip(" ", 1, 0)
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), strip]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer
