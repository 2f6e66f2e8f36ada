"""From a request to prompt tokens: the model's chat template and tokenizer.

Only the template may write special tokens. The template sees messages as they are; a special token that one of them
spells out (`<|im_end|>` in a source text) is encoded as text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from thothy_ai.engine.api import GenerationRequest, Message, ToolChoice
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.text.answers import Answers, AnswerShape, check_calls, definitions
from thothy_ai.engine.text.chat_template import ChatTemplate, tool_options
from thothy_ai.engine.text.generic_tools import with_texts
from thothy_ai.engine.text.special_tokens import MarkedTokenizer, SpecialTokens, token_ids, unlimited

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class PromptText:
    """A prompt to tokenize. The tokenizer adds its own special tokens to a `whole` prompt; in a `marked` one, only
    tokens with marks are special. `opens_thought`: the prompt begins a thought that the model continues.
    """

    text: str
    whole: bool = False
    marked: bool = False
    opens_thought: bool = False


Tokens = tuple[int, ...]


class PromptEncoder:
    """Turns requests into token ids: one by one into texts, and many texts at once into tokens. Used by one thread."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._backend = unlimited(tokenizer)
        self._special = SpecialTokens(self._backend)
        self.template = ChatTemplate(tokenizer, self._special)

    @cached_property
    def answers(self) -> Answers:
        """How the model divides its answers."""
        return Answers(self.template.answer_form(), self._backend)

    def write(self, request: GenerationRequest) -> PromptText | Tokens:
        """The prompt; InvalidRequestError for a request without one, or with one that cannot be encoded.

        `text` is a whole prompt: special tokens in it are recognized, and the tokenizer adds its own.
        """
        if sum((bool(request.messages), request.text is not None, bool(request.token_ids))) != 1:
            raise InvalidRequestError("give exactly one of messages, text and token_ids")
        if request.token_ids:
            return request.token_ids
        if request.text is not None:
            _check_unicode(request.text)
            return PromptText(request.text, whole=True)
        texts = [text for message in request.messages for text in (message.role, message.content)]
        option_texts = [value for value in request.template_options.values() if isinstance(value, str)]
        for text in (*texts, *option_texts):
            _check_unicode(text)
        if any(self._special.in_text(message.role) for message in request.messages):
            raise InvalidRequestError("a message's role contains a special token", "messages")
        if any(map(self._special.in_text, option_texts)):
            raise InvalidRequestError("a template option contains a special token", "template_options")
        return self._chat(request)

    def answer(self, request: GenerationRequest, prompt: PromptText | Tokens) -> AnswerShape | None:
        """How a request's output is divided and bound, given its prompt; None if it is not divided."""
        if not request.divided:
            return None
        return self.answers.of(request, opened=isinstance(prompt, PromptText) and prompt.opens_thought)

    def _chat(self, request: GenerationRequest) -> PromptText:
        """The prompt of messages, as the template writes them."""
        # A schema leaves no room for thoughts; a template without that option ignores it.
        bound = request.schema is not None and not request.divided
        options: dict[str, Any] = {"enable_thinking": False} if bound else {}
        options |= request.template_options
        messages: Sequence[Message] = request.messages
        check_calls(messages)
        tools = definitions(request.tools) if request.tools and request.tools.choice is not ToolChoice.NONE else []
        if tools or any(message.calls or message.role == "tool" for message in messages):
            if not self.answers.form.native:
                messages = with_texts(messages, tools)
            elif tools:
                options |= tool_options(tools)
        messages = self.template.without_system(messages)
        try:
            prompt = self.template.render(messages, options)
        except InvalidRequestError:
            if (renamed := self.answers.form.with_ids(messages)) == messages:
                raise
            prompt = self.template.render(messages := renamed, options)
        _check_unicode(prompt)  # arguments of calls and tools may have escapes
        marked = self.template.mark(prompt, messages, options)
        opens = request.divided and self.answers.is_opened_by(prompt)
        return PromptText(marked or prompt, marked=marked is not None, opens_thought=opens)

    def encode(self, prompts: Sequence[PromptText | Tokens]) -> list[Tokens | Exception]:
        """The tokens of each prompt, or the error if it has none. Texts are tokenized in parallel, without the GIL."""
        encoded: dict[PromptText | Tokens, Tokens | Exception] = {}
        alike: dict[tuple[bool, bool], list[PromptText]] = defaultdict(list)
        for prompt in dict.fromkeys(prompts):
            if isinstance(prompt, PromptText):
                alike[prompt.whole, prompt.marked].append(prompt)
            else:
                encoded[prompt] = prompt
        for some in alike.values():
            encoded.update(zip(some, self._encoded(some), strict=True))
        return [encoded[prompt] for prompt in prompts]

    def _encoded(self, alike: Sequence[PromptText]) -> Sequence[Tokens | Exception]:
        texts, first = [prompt.text for prompt in alike], alike[0]
        try:
            if first.marked:
                return self._marked.encode(texts)
            return token_ids(self._backend, texts, adds_special=first.whole)
        except Exception as error:  # noqa: BLE001  tokenizers come with the model, and may raise anything
            return [error] if len(alike) == 1 else [each for one in alike for each in self._encoded([one])]

    @cached_property
    def _marked(self) -> MarkedTokenizer:
        return MarkedTokenizer(self._backend, self._special)


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"the prompt is not valid Unicode: a lone surrogate at {error.start}", "text"
        ) from error
