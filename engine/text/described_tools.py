"""Describes tools to DeepSeek's models, whose chat templates write calls but no descriptions of tools.

The text is from DeepSeek-V3.1's model card. It is put before the chat template and becomes a part of it, so that the
marks in the text are special tokens, whereas marks in tools and messages remain plain text.
"""

from __future__ import annotations

from thothy_ai.engine.text.answer_form import CallForm

_TEMPLATE = """\
{%- if tools -%}
{%- set described = namespace(text='## Tools\\nYou have access to the following tools:\\n') -%}
{%- for tool in tools -%}
{%- set described.text = described.text + '\\n### ' + tool.function.name + '\\nDescription: '
    + (tool.function.description or '') + '\\n\\nParameters: ' + ((tool.function.parameters or {}) | tojson) + '\\n' -%}
{%- endfor -%}
{%- set described.text = described.text + '\\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\\n@FORM\\n\\n'
    + 'Where:\\n\\n- `tool_call_name` must be an exact match to one of the available tools\\n'
    + '- `tool_call_arguments` must be valid JSON that strictly follows the tool\\'s Parameters Schema\\n'
    + '- For multiple tool calls, @SEVERAL\\n' -%}
{%- if messages[0].role == 'system' -%}
{%- set described.text = messages[0].content + '\\n\\n' + described.text -%}
{%- set messages = messages[1:] -%}
{%- endif -%}
{%- set messages = [{'role': 'system', 'content': described.text}] + messages -%}
{%- endif -%}
"""


def described_tools(form: CallForm) -> str:
    """The text to put before a chat template with this form of calls, so that a system message describes the tools."""
    call = f"{form.head('tool_call_name')}tool_call_arguments{form.after_arguments}"
    written = f"{form.begin}{call}{{{{additional_tool_calls}}}}{form.end}".replace("\n", "\\n")
    several = "begin each on a new line" if form.between else "chain them directly without separators or spaces"
    return _TEMPLATE.replace("@FORM", written).replace("@SEVERAL", several)
