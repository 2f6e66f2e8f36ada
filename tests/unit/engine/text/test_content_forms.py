"""Templates that read contents as strings, as lists of parts, or as neither: no text is lost in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from tests.support.prompts import encode
from tests.support.tiny_tokenizer import CHAT_TEMPLATE, make_tokenizer
from thothy_ai.engine.api import GenerationRequest, Message
from thothy_ai.engine.api.errors import InvalidRequestError, UnsupportedModelError
from thothy_ai.engine.text.end_of_turn import end_of_turn
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.tools import text_tools

PARTS = {
    "one after the other": (  # as SmolVLM's and Idefics 3's
        "<|im_start|>{% for m in messages %}{{ m.role | capitalize }}"
        "{% if m['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
        "{% for line in m['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}"
        "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
    ),
    "images first": (  # as Llava's
        "{% for m in messages %}{{ m.role | upper + ': ' }}"
        "{% for part in m.content | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
        "{% for part in m.content | selectattr('type', 'equalto', 'text') %}{{ part['text'] + ' ' }}{% endfor %}"
        "{% if m.role == 'assistant' %}<|im_end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
    ),
    "the first part": (  # as Llama Guard 3's
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}"
        "{% endif %}{{ m.role + '\n' + m.content[0]['text'] | trim }}<|im_end|>{% endfor %}"
    ),
    "by role": (  # a string of the system only, parts of the others
        "{% for m in messages %}{{ m.role + ': ' }}{% if m.role == 'system' %}{{ m.content | upper }}"
        "{% else %}{{ m.content[0].text }}{% endif %}<|im_end|>{% endfor %}"
    ),
    "either": (  # as Gemma 3's
        "{% for m in messages %}{{ m.role }}{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}<|im_end|>{% endfor %}"
    ),
}
TURNS = (("system", "Be 4 brief."), ("user", "Say <|im_end|> twelve"), ("assistant", "one two"), ("user", "and three"))


def tokenizer_of(template: str) -> PreTrainedTokenizerFast:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


def chat(*turns: tuple[str, str]) -> GenerationRequest:
    return GenerationRequest("id", messages=tuple(Message(*turn) for turn in turns))


@pytest.mark.parametrize("template", PARTS)
def test_every_word_of_a_conversation_is_in_the_prompt(template: str) -> None:
    tokenizer = tokenizer_of(PARTS[template])
    tokens = encode(PromptEncoder(tokenizer), chat(*TURNS))
    text = tokenizer.decode(tokens).lower()
    places = [text.index(content.lower()) for _, content in TURNS]
    assert places == sorted(places)
    written = tokenizer.apply_chat_template(
        [{"role": role, "content": [{"type": "text", "text": "."}]} for role, _ in TURNS[1:]], tokenize=False
    )
    assert tokens.count(2) in {written.count("<|im_end|>"), 4}, "the message's own is text"
    assert end_of_turn(tokenizer) == 2


LOSING = {
    "fixed": "Say something.<|im_end|>",
    "another field": "{% for m in messages %}{{ m.role }}{{ m.content.body }}<|im_end|>{% endfor %}",
    "other parts": "{% for m in messages %}{% for p in m.content %}{{ p.audio }}{% endfor %}{% endfor %}",
    "printed": "{% for m in messages %}{% if m.content is not string %}{{ m.content }}{% endif %}{% endfor %}",
}


@pytest.mark.parametrize("template", LOSING)
def test_a_template_that_loses_what_users_say_is_refused(template: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="tiny: the chat template writes nothing of a user's message"):
        text_tools(tokenizer_of(LOSING[template]), "tiny")


def test_a_role_of_which_nothing_is_written_is_refused_by_name() -> None:
    encoder = PromptEncoder(tokenizer_of("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}."))
    assert encode(encoder, chat(("user", "hello")))
    assert encode(encoder, chat(("system", "be brief"), ("user", "hello"))) == encode(
        encoder, chat(("user", "be brief\n\nhello"))
    ), "the system's words stand before the user's"
    with pytest.raises(InvalidRequestError, match="writes nothing of a message by 'assistant'"):
        encode(encoder, chat(("user", "hello"), ("assistant", "yes"), ("user", "and")))


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, None, "{{ raise_exception('never') }}", "{% if %}"])
def test_others_are_as_they_were(template: str | None) -> None:
    encoder = text_tools(tokenizer_of(template), "tiny").prompts  # type: ignore[arg-type]
    if template == CHAT_TEMPLATE:
        assert encode(encoder, chat(("user", "hi")))
    else:
        with pytest.raises(InvalidRequestError, match="chat template"):
            encode(encoder, chat(("user", "hi")))
