"""Small chat templates in the forms of model families that know tools, and tokenizers with their marks."""

from __future__ import annotations

from functools import cache

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

from tests.support.tiny_tokenizer import make_tokenizer

SPECIAL = ("[TOOL_CALLS]", "[ARGS]", "[INST]", "[/INST]", "<|python_tag|>", "<|eot_id|>", "<|start_header_id|>",
           "<|end_header_id|>", "<|tool_call|>", "[THINK]", "[/THINK]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
           "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|constrain|>", "<|return|>",
           "<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>", "<|turn>", "<turn|>", "<|tool>",
           "<tool|>", "<|tool_response>", "<tool_response|>", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
           "<s>", "</s>")  # fmt: skip

_CHATML = (
    "{%- if tools %}{{ '<|im_start|>system\n' }}"
    "{%- if messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{%- endif %}"
    "{{ '# Tools\n<tools>' }}{%- for tool in tools %}{{ '\n' }}{{ tool | tojson }}{%- endfor %}"
    '{{ \'\n</tools>\n<tool_call>\n{"name": <function-name>, "arguments": <args>}\n</tool_call><|im_end|>\n\' }}'
    "{%- elif messages[0].role == 'system' %}{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}"
    "{%- endif %}{%- for message in messages %}"
    "{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- elif message.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}"
    "@THOUGHTS{%- if message.content %}{{ message.content }}{%- endif %}"
    "@CALLS{{ '<|im_end|>\n' }}"
    "{%- elif message.role == 'tool' %}{{ '<|im_start|>user\n<tool_response>\n' + message.content }}"
    "{{ '\n</tool_response><|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n@OPENING' }}{%- endif %}"
)
_CALLS = (
    "{%- for call in message.tool_calls or [] %}{%- if message.content or not loop.first %}{{ '\n' }}{%- endif %}"
    '{{ \'<tool_call>\n{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{{ call.function.arguments | tojson }}{{ '}\n</tool_call>' }}{%- endfor %}"
)
_THOUGHTS = (
    "{%- if message.reasoning_content is string and message.reasoning_content %}"
    "{{ '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{%- endif %}"
)
_MISTRAL = (
    "{{ '<s>' }}{%- if tools %}{{ '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{%- endif %}"
    "{%- for message in messages %}{%- if message.role == 'user' %}{{ '[INST]' + message.content + '[/INST]' }}"
    "{%- elif message.role == 'system' %}{{ '[INST]' + message.content + '[/INST]' }}"
    "{%- elif message.tool_calls is defined and message.tool_calls %}@CALLS{{ '</s>' }}"
    "{%- elif message.role == 'assistant' %}{{ message.content + '</s>' }}"
    "{%- elif message.role == 'tool' %}{%- if message.tool_call_id | length != 9 %}"
    "{{ raise_exception('ids of calls have nine letters and digits') }}{%- endif %}"
    "{{ '[TOOL_RESULTS]' + message.content + '[/TOOL_RESULTS]' }}{%- endif %}{%- endfor %}"
)


def _chatml(thoughts: str = "", opening: str = "", calls: str = _CALLS) -> str:
    return _CHATML.replace("@THOUGHTS", thoughts).replace("@OPENING", opening).replace("@CALLS", calls)


FAMILIES = {
    "hermes": _chatml(),
    "qwen 3": _chatml(_THOUGHTS),
    "opened": _chatml(_THOUGHTS, "<think>\n"),
    "llama 3": (
        "{{ '<|start_header_id|>system<|end_header_id|>\n\n' }}{%- if messages[0].role == 'system' %}"
        "{{ messages[0].content }}{%- endif %}{%- if tools %}"
        "{{ 'Answer with {\"name\": NAME, \"parameters\": OBJECT}\n' }}"
        "{%- for tool in tools %}{{ tool | tojson(indent=4) + '\n\n' }}{%- endfor %}{%- endif %}{{ '<|eot_id|>' }}"
        "{%- for message in messages %}{%- if message.role in ('user', 'assistant') and not message.tool_calls %}"
        "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content + '<|eot_id|>' }}"
        "{%- elif 'tool_calls' in message %}{%- if message.tool_calls | length != 1 %}"
        "{{ raise_exception('one call at a time') }}{%- endif %}{%- set call = message.tool_calls[0].function %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n{\"name\": \"' + call.name + '\", \"parameters\": ' }}"
        "{{ call.arguments | tojson }}{{ '}<|eot_id|>' }}"
        "{%- elif message.role == 'tool' %}{{ '<|start_header_id|>ipython<|end_header_id|>\n\n' }}"
        "{{ message.content | tojson }}{{ '<|eot_id|>' }}{%- endif %}{%- endfor %}"
        "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
    ),
    "mistral": _MISTRAL.replace(
        "@CALLS",
        "{{ '[TOOL_CALLS] [' }}{%- for call in message.tool_calls %}{{ '{\"name\": \"' + call.function.name }}"
        "{{ '\", \"arguments\": ' + call.function.arguments | tojson + ', \"id\": \"' + call.id + '\"}' }}"
        "{%- if not loop.last %}{{ ', ' }}{%- endif %}{%- endfor %}{{ ']' }}",
    ),
    "magistral": _MISTRAL.replace("{{ message.content", "{{ '[THINK]hm[/THINK]' + message.content")
    .replace(
        "@CALLS",
        "{%- for call in message.tool_calls %}{{ '[TOOL_CALLS]' + call.function.name + '[ARGS]' }}"
        "{{ call.function.arguments | tojson }}{%- endfor %}",
    ),
    "granite": _chatml(
        calls="{%- if message.tool_calls %}{{ '<|tool_call|>[' }}{%- for call in message.tool_calls %}"
        "{{ '{\"name\": \"' + call.function.name + '\", \"arguments\": ' + call.function.arguments | tojson + '}' }}"
        "{%- if not loop.last %}{{ ', ' }}{%- endif %}{%- endfor %}{{ ']' }}{%- endif %}"
    ),
    "channels": (
        "{{ '<|start|>system<|message|>Channels: analysis, commentary, final.<|end|>' }}{%- if tools %}"
        "{{ '<|start|>developer<|message|>namespace functions {' }}{%- for tool in tools %}"
        "{{ '\n' + tool.function.name + tool.function.parameters | tojson }}{%- endfor %}{{ '}<|end|>' }}{%- endif %}"
        "{%- for message in messages %}{%- if message.role == 'assistant' %}{%- if message.tool_calls %}"
        "{%- if message.thinking %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking }}"
        "{{ '<|end|>' }}{%- endif %}{%- set call = message.tool_calls[0].function %}"
        "{{ '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' }}"
        "{{ call.arguments | tojson + '<|call|>' }}{%- else %}"
        "{{ '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}{%- endif %}"
        "{%- elif message.role == 'tool' %}"
        "{{ '<|start|>functions to=assistant<|channel|>commentary<|message|>' + message.content | tojson }}"
        "{{ '<|end|>' }}"
        "{%- else %}{{ '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}{%- endif %}"
        "{%- endfor %}{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{%- endif %}"
    ),
    "pairs": _chatml(
        _THOUGHTS,
        calls="{%- for call in message.tool_calls or [] %}{{ '<tool_call>' + call.function.name }}"
        "{%- for key, value in call.function.arguments.items() %}{{ '\n<arg_key>' + key + '</arg_key>\n<arg_value>' }}"
        "{{ value if value is string else value | tojson }}{{ '</arg_value>' }}{%- endfor %}{{ '\n</tool_call>' }}"
        "{%- endfor %}",
    ),
    "coder": _chatml(
        calls="{%- for call in message.tool_calls or [] %}{{ '<tool_call>\n<function=' + call.function.name + '>\n' }}"
        "{%- for key, value in call.function.arguments.items() %}{{ '<parameter=' + key + '>\n' }}"
        "{{ value if value is string else value | tojson }}{{ '\n</parameter>\n' }}{%- endfor %}"
        "{{ '</function>\n</tool_call>' }}{%- endfor %}",
    ),
    "gemma 4": (
        "{%- macro value(it) %}{%- if it is string %}{{ '<|\"|>' + it + '<|\"|>' }}{%- else %}{{ it | tojson }}"
        "{%- endif %}{%- endmacro %}"
        "{%- if tools or messages[0].role == 'system' %}{{ '<|turn>system\n' }}"
        "{%- if messages[0].role == 'system' %}{{ messages[0].content }}{%- endif %}"
        "{%- for tool in tools or [] %}{{ '<|tool>declaration:' + tool.function.name + '{' }}"
        "{{ (tool.function.description or '') | tojson + '}<tool|>' }}{%- endfor %}{{ '<turn|>\n' }}{%- endif %}"
        "{%- for message in messages %}{%- if message.role == 'user' %}"
        "{{ '<|turn>user\n' + message.content + '<turn|>\n' }}"
        "{%- elif message.role == 'assistant' %}{{ '<|turn>model\n' }}"
        "{%- if message.reasoning_content %}{{ '<|channel>thought\n' + message.reasoning_content + '\n<channel|>' }}"
        "{%- endif %}{%- for call in message.tool_calls or [] %}{{ '<|tool_call>call:' + call.function.name + '{' }}"
        "{%- for key, it in call.function.arguments.items() %}{{ key + ':' + value(it) }}"
        "{%- if not loop.last %}{{ ',' }}{%- endif %}{%- endfor %}{{ '}<tool_call|>' }}{%- endfor %}"
        "{%- if message.content %}{{ message.content }}{%- endif %}{{ '<turn|>\n' }}"
        "{%- elif message.role == 'tool' %}{{ '<|tool_response>response:' + (message.name or 'tool') + '{value:' }}"
        "{{ value(message.content) + '}<tool_response|>' }}{%- endif %}{%- endfor %}"
        "{%- if add_generation_prompt %}{{ '<|turn>model\n' }}{%- endif %}"
    ),
    "python": (
        "{%- if custom_tools is defined %}{{ '<|start_header_id|>system<|end_header_id|>\n\n' }}"
        "{%- if messages[0].role == 'system' %}{{ messages[0].content }}{%- endif %}"
        "{{ '[name(parameter=value)]\n' + custom_tools | tojson + '<|eot_id|>' }}{%- endif %}"
        "{%- for message in messages %}{%- if message.tool_calls %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n[' }}{%- for call in message.tool_calls %}"
        "{{ call.function.name + '(' }}{%- for key in call.function.arguments %}"
        "{{ key + '=\"' + '%s' | format(call.function.arguments[key]) + '\"' }}"
        "{%- if not loop.last %}{{ ', ' }}{%- endif %}{%- endfor %}{{ ')' }}"
        "{%- if not loop.last %}{{ ', ' }}{%- endif %}{%- endfor %}{{ ']<|eot_id|>' }}"
        "{%- elif message.role == 'tool' %}{{ '<|start_header_id|>ipython<|end_header_id|>\n\n' }}"
        "{{ message.content | tojson + '<|eot_id|>' }}"
        "{%- elif message.role != 'system' or custom_tools is not defined %}"
        "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content + '<|eot_id|>' }}"
        "{%- endif %}{%- endfor %}"
        "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
    ),
    "marked python": _chatml(
        calls="{%- if message.tool_calls %}{{ '<|tool_call|>[' }}{%- for call in message.tool_calls %}"
        "{{ call.function.name + '(' }}{%- for key, value in call.function.arguments.items() %}"
        "{{ key + '=' + (value | tojson) }}{%- if not loop.last %}{{ ', ' }}{%- endif %}{%- endfor %}{{ ')' }}"
        "{%- if not loop.last %}{{ ', ' }}{%- endif %}{%- endfor %}{{ ']<|call|>' }}{%- endif %}",
    ),
    "none": (
        "{%- for message in messages %}{%- if message.role not in ('system', 'user', 'assistant') %}"
        "{{ raise_exception('unknown role') }}{%- endif %}"
        "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
    ),
}  # fmt: skip


@cache
def _definition() -> str:
    backend = make_tokenizer().backend_tokenizer
    backend.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in SPECIAL])
    return str(backend.to_str())


@cache
def family(name: str) -> PreTrainedTokenizerFast:
    """A tokenizer with the template of this family. Qwen's has marks of its own, which are not special."""
    backend = Tokenizer.from_str(_definition())
    if name in ("qwen 3", "opened", "pairs"):
        plain = ("<think>", "</think>", "<tool_call>", "</tool_call>")
        plain += ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>") if name == "pairs" else ()
        backend.add_tokens([AddedToken(mark, normalized=False) for mark in plain])
    made = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    made.chat_template = FAMILIES[name]
    return made
