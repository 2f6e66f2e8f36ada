"""Checks the tokenizer and the chat template of a model's folder, loaded as in an engine's frontend."""

from __future__ import annotations

from pathlib import Path

from jinja2 import TemplateError
from jinja2.meta import find_undeclared_variables

from thothy_ai.engine.api.errors import ModelLoadError, one_line
from thothy_ai.engine.api.template_options import RESERVED
from thothy_ai.engine.model_check.report import TextReport
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.text.model_text import core_tokenizer
from thothy_ai.engine.text.tokenizer import load_tokenizer, tokenizer_file
from thothy_ai.engine.text.tools import fast_tokenizer, text_tools
from thothy_ai.engine.weights.loader import ending

_GIVEN = {"raise_exception", "strftime_now"}  # functions that transformers provides to templates


def text_report(folder: Path, path: Path, config: ModelConfig | None) -> TextReport:
    """The report on the folder's tokenizer and, with `config`, on the tokens that end a generation.

    ModelLoadError, naming `path`, if the tokenizer is missing, or if it or its template can't be used.
    """
    tokenizer = fast_tokenizer(load_tokenizer(folder), str(path))
    text_tools(tokenizer, str(path), None if config is None else config.vocab_size)
    ends = () if config is None else ending(config, path, core_tokenizer(tokenizer, folder)).eos_token_ids
    template_options: tuple[str, ...] | None = None
    if tokenizer.chat_template:
        from transformers.utils.chat_template_utils import _compile_jinja_template  # noqa: PLC0415  slow to import

        try:
            source = tokenizer.get_chat_template()
            tree = _compile_jinja_template(source).environment.parse(source)
        except (TemplateError, ValueError) as error:
            raise ModelLoadError(f"{path}: the chat template can't be compiled: {one_line(error)}") from error
        variables = find_undeclared_variables(tree) - _GIVEN - RESERVED
        template_options = tuple(sorted(name for name in variables if not name.endswith(("_token", "_tokens"))))
    return TextReport(
        file=tokenizer_file(folder) or "",
        vocabulary=len(tokenizer),
        ends=tuple(map(str, tokenizer.convert_ids_to_tokens(list(ends)))),
        template_options=template_options,
    )
