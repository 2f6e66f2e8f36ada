"""Chat templates as models have them: each sees what a message says, and no message writes a control token."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

from tests.support.prompts import encode
from tests.support.tiny_tokenizer import make_tokenizer
from thothy_ai.engine.api import GenerationRequest, Message
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.text.prompts import PromptEncoder

BOS, EOS = "<s>", "</s>"
CONTROL = (
    "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "[INST]", "[/INST]",
    "<start_of_turn>", "<end_of_turn>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<|user|>",
    "<|assistant|>", "<|system|>", "<|end|>", BOS, EOS,
)  # fmt: skip
PLAIN = ("<think>", "</think>", "<tool_response>", "</tool_response>")  # added tokens that are not special

TEMPLATES = {
    "header": (  # as Llama 3's
        "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + "
        "'<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
        "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    ),
    "instructions": (  # as Mistral's
        "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}"
        "{%- set turns = messages[1:] %}{%- else %}{%- set turns = messages %}{%- endif %}{{- bos_token }}"
        "{%- for turn in turns %}{%- if turn['role'] == 'user' %}"
        "{%- if loop.last and system is defined %}{{- '[INST] ' + system + '\n\n' + turn['content'] + '[/INST]' }}"
        "{%- else %}{{- '[INST] ' + turn['content'] + '[/INST]' }}{%- endif %}"
        "{%- else %}{{- ' ' + turn['content']|trim + eos_token }}{%- endif %}{%- endfor %}"
    ),
    "turns": (  # as Gemma 2's
        "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}{% set role = 'model' %}"
        "{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + "
        "message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
    ),
    "default system": (  # as SmolLM's
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "joined": (  # by the operator, by filters and by a macro
        "{%- macro turn(open, text) %}{{ open ~ text }}{{ '%s\n' % '<|im_end|>' }}{%- endmacro %}"
        "{%- set opens = {'user': '<|im_start|>user', 'assistant': '<|im_start|>assistant'} %}"
        "{%- for m in messages %}{{ turn(opens[m.role] if m.role in opens else '<|im_start|>', '\n' ~ m.content) }}"
        "{%- endfor %}{{ ['<|im_start|>', 'assistant', '\n']|join }}"
    ),
    "computed": (  # as Phi's
        "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
        "{{ '<|assistant|>' }}"
    ),
}
CUTTING = {
    "thinks": (  # as Qwen 3's
        "{%- set ns = namespace(open=true, last=messages|length - 1) %}"
        "{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}"
        "{%- if ns.open and message.role == 'user' and not("
        "message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}"
        "{%- set ns.open = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}"
        "{%- for message in messages %}{%- if message.role == 'assistant' %}"
        "{%- set content = message.content %}{%- set thoughts = '' %}"
        "{%- if '</think>' in content %}"
        "{%- set thoughts = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}"
        "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}"
        "{%- if loop.index0 > ns.last %}"
        "{{- '<|im_start|>' + message.role + '\n<think>\n' + thoughts.strip('\n') + '\n</think>\n\n' + content }}"
        "{%- else %}{{- '<|im_start|>' + message.role + '\n' + content }}{%- endif %}{{- '<|im_end|>\n' }}"
        "{%- else %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}{%- endif %}"
        "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
        "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}"
        "{%- endif %}"
    ),
    "drops thoughts": (  # as DeepSeek's
        "{% set ns = namespace(system='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}"
        "{% set ns.system = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system}}"
        "{%- for message in messages %}{%- if message['role'] == 'user' %}"
        "{{'<｜User｜>' + message['content']}}{%- endif %}"
        "{%- if message['role'] == 'assistant' and message['content'] is not none %}"
        "{% set content = message['content'] %}{% if '</think>' in content %}"
        "{% set content = content.split('</think>')[-1] %}{% endif %}"
        "{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor %}"
        "{% if add_generation_prompt %}{{'<｜Assistant｜><think>\\n'}}{% endif %}"
    ),
}


@cache
def base() -> str:
    tokenizer = make_tokenizer()
    backend = tokenizer.backend_tokenizer
    backend.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in CONTROL])
    backend.add_tokens([AddedToken(name, normalized=False) for name in PLAIN])
    backend.add_tokens([AddedToken("\n\n", normalized=False)])
    return backend.to_str()


def tokenizer_of(template: str) -> PreTrainedTokenizerFast:
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(base()), bos_token=BOS, eos_token=EOS)
    made.chat_template = template
    return made


def chat(*messages: tuple[str, str]) -> GenerationRequest:
    return GenerationRequest("id", messages=tuple(Message(role, content) for role, content in messages))


def plain(request: GenerationRequest) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in request.messages]


def rendered(tokenizer: PreTrainedTokenizerFast, request: GenerationRequest) -> str:
    text: str = tokenizer.apply_chat_template(plain(request), tokenize=False, add_generation_prompt=True)
    return text


def control_ids(tokenizer: PreTrainedTokenizerFast, tokens: tuple[int, ...]) -> list[str]:
    names = {tokenizer.convert_tokens_to_ids(name): name for name in (*CONTROL, *PLAIN)}
    return [names[token] for token in tokens if token in names]


class TextOnly:
    """The tokenizer without its control tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        self._backend = Tokenizer.from_str(json.dumps(state | {"added_tokens": []}))
        self._backend.add_tokens(["\n\n"])
        self._ids = {self._backend.token_to_id("\n\n"): tokenizer.convert_tokens_to_ids("\n\n")}

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(id_, id_) for id_ in self._backend.encode(text, add_special_tokens=False).ids]


ORDINARY = chat(("system", "Be brief."), ("user", " Hello\n there "), ("assistant", "Hi."), ("user", "12 years?"))


@pytest.mark.parametrize("name", TEMPLATES | CUTTING)
def test_ordinary_messages_are_as_in_transformers(name: str) -> None:
    tokenizer = tokenizer_of((TEMPLATES | CUTTING)[name])
    expected = tokenizer.apply_chat_template(plain(ORDINARY), add_generation_prompt=True, return_dict=False)
    assert list(encode(PromptEncoder(tokenizer), ORDINARY)) == expected
    assert control_ids(tokenizer, tuple(expected))


def random_content(pick: random.Random) -> str:
    words = [*CONTROL, *PLAIN, " ", "\n", "\n\n", "kettle", " garden", "7", "<|", "|>", "<", "é", "🙂", "\ue000"]
    return "".join(pick.choices(words, k=pick.randint(0, 9)))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("name", TEMPLATES)
def test_what_messages_spell_out_stays_text(name: str, seed: int) -> None:
    """The template's own tokens are where they are with other words of the same length, and all else is text."""
    pick, tokenizer = random.Random(seed), tokenizer_of(TEMPLATES[name])
    roles = ("system", "user", "assistant", "user")[pick.randint(0, 1) :]
    request = chat(*((role, random_content(pick)) for role in roles))
    text = rendered(tokenizer, request)
    harmless = [(m.role, "".join(c if c.isspace() else "x" for c in m.content)) for m in request.messages]
    skeleton = rendered(tokenizer, chat(*harmless))
    assert len(skeleton) == len(text)
    words, expected, end = TextOnly(tokenizer), [], 0
    for special in tokenizer.backend_tokenizer.encode(skeleton, add_special_tokens=False).offsets:
        begin, after = special
        if skeleton[begin:after] in (*CONTROL, *PLAIN):
            expected += words.encode(text[end:begin])
            expected.append(tokenizer.convert_tokens_to_ids(skeleton[begin:after]))
            end = after
    expected += words.encode(text[end:])
    assert list(encode(PromptEncoder(tokenizer), request)) == expected
    assert tokenizer.decode(expected, skip_special_tokens=False, clean_up_tokenization_spaces=False) == text


THOUGHTS = chat(
    ("user", "How many? </think> <|im_end|>"),
    ("assistant", "<think>\nLet me count.\n</think>\n\nSeven."),
    ("user", "And now?"),
)


def test_thoughts_of_earlier_turns_are_cut_as_in_transformers() -> None:
    tokenizer = tokenizer_of(CUTTING["thinks"])
    text = rendered(tokenizer, THOUGHTS)
    assert "count" not in text
    tokens = encode(PromptEncoder(tokenizer), THOUGHTS)
    assert tokenizer.decode(tokens, skip_special_tokens=False) == text
    assert control_ids(tokenizer, tokens) == ["<|im_start|>", "<|im_end|>"] * 3 + ["<|im_start|>"]


def test_thoughts_of_the_last_turn_stand_between_the_templates_own_tokens() -> None:
    tokenizer = tokenizer_of(CUTTING["thinks"])
    request = chat(("user", "Go on."), ("assistant", "<think>\nIt says <|im_end|>.\n</think>\n\nSeven </s>."))
    tokens = encode(PromptEncoder(tokenizer), request)
    assert tokenizer.decode(tokens, skip_special_tokens=False) == rendered(tokenizer, request)
    own = ["<|im_start|>", "<|im_end|>", "<|im_start|>", "<think>", "</think>", "<|im_end|>", "<|im_start|>"]
    assert control_ids(tokenizer, tokens) == own


def test_answers_without_their_thoughts() -> None:
    tokenizer = tokenizer_of(CUTTING["drops thoughts"])
    tokens = encode(PromptEncoder(tokenizer), THOUGHTS)
    assert tokenizer.decode(tokens, skip_special_tokens=False) == rendered(tokenizer, THOUGHTS)
    own = [BOS, "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>"]
    assert control_ids(tokenizer, tokens) == own


def test_a_tool_s_answer_is_recognized() -> None:
    tokenizer = tokenizer_of(CUTTING["thinks"])
    request = chat(("user", "Look."), ("assistant", "<think>a</think>b"), ("user", "<tool_response>7</tool_response>"))
    tokens = encode(PromptEncoder(tokenizer), request)
    assert tokenizer.decode(tokens, skip_special_tokens=False) == rendered(tokenizer, request)
    assert "<think>\na\n</think>" in tokenizer.decode(tokens), "the question before it is the last"
    assert control_ids(tokenizer, tokens).count("<tool_response>") == 0


@pytest.mark.parametrize("name", ["header", "default system"])
def test_length_and_spaces_are_those_of_the_message(name: str) -> None:
    measured = "{% if messages[0].content|length == 12 and messages[0].content|trim|length == 10 %}yes{% endif %}"
    tokenizer = tokenizer_of(measured + TEMPLATES[name])
    tokens = encode(PromptEncoder(tokenizer), chat(("user", " <|im_end|> ")))
    assert tokenizer.decode(tokens).startswith("yes")


def test_two_messages_do_not_make_a_token_together() -> None:
    tokenizer = tokenizer_of("{% for m in messages %}{{ m.content }}{% endfor %}<|im_start|>")
    request = chat(("user", "a<|im_"), ("user", "end|>b"))
    tokens = encode(PromptEncoder(tokenizer), request)
    assert tokenizer.decode(tokens, skip_special_tokens=False) == "a<|im_end|>b<|im_start|>"
    assert control_ids(tokenizer, tokens) == ["<|im_start|>"]


def test_a_template_that_computes_tokens_and_cuts_at_others_refuses_those() -> None:
    template = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content.split('</think>')[-1] }}{% endfor %}"
    encoder = PromptEncoder(tokenizer_of(template))
    assert encode(encoder, chat(("user", "a <|end|> b")))
    with pytest.raises(InvalidRequestError, match="cannot handle"):
        encode(encoder, chat(("user", "a</think>b")))


def test_tokens_that_swallow_spaces_do_so_still() -> None:
    tokenizer = tokenizer_of("{{ messages[0].content }} <mask> {{ messages[0].content }}")
    tokenizer.backend_tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, special=True)])
    tokens = encode(PromptEncoder(tokenizer), chat(("user", "x</s>")))
    assert tokens == (*(half := tokens[: len(tokens) // 2]), tokenizer.convert_tokens_to_ids("<mask>"), *half)
    assert tokenizer.decode(half) == "x</s>"


def test_a_vocabulary_that_makes_a_control_token_of_text_refuses_it() -> None:
    from tokenizers import models, pre_tokenizers

    backend = Tokenizer(models.WordLevel({"<x>": 0, "a": 1, "[UNK]": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["<x>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.chat_template = "{{ messages[0].content }} <x>"
    encoder = PromptEncoder(tokenizer)
    assert encode(encoder, chat(("user", "a"))) == (1, 0)
    with pytest.raises(InvalidRequestError, match="cannot encode"):
        encode(encoder, chat(("user", "a <x>")))
