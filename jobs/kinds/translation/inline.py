"""Masks the parts that a translation copies: placeholders, link targets, inline code, HTML tags and the like.

Each becomes a number in braces, `{1}`, which models of all sizes copy like any format placeholder, and which costs
three tokens where a link costs thirty. Text in braces is masked as well, to avoid ambiguity. Emphasis stays as it is:
it has to move with the words.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.text.strings import blanked

_OPAQUE = re.compile(
    r"""
      (?P<code>(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))
    | <!--.*?-->
    | <(?:script|style)\b.*?</(?:script|style)\s*>
    | </?[A-Za-z][A-Za-z0-9-]*(?:\s[^<>]*)?/?>        # HTML and XML tags
    | <(?:[a-z][a-z0-9+.-]{1,30}:|[^\s<>@]+@)[^\s<>]*>  # links and addresses in angle brackets
    | (?<=\])\((?:[^()\n]|\([^()\n]*\))*\)            # the target of a Markdown link, with its brackets
    | (?<=\])\[[^\]\n]*\]                             # the label of a reference link
    | \[\^[^\]\s]+\]                                  # a footnote's mark
    | \$\{[^{}\n]*\} | \{\{[^{}\n]*\}\} | \{\%.*?\%\} | \{(?:[^{}\n]|\{[^{}\n]*\})*\}
    | (?<![\d%])%(?:\(\w+\)|\d+\$)?[-+0#]*\d*(?:\.\d+)?[sdifgxX@](?!\w)
    | \$\$.+?\$\$ | \\\(.+?\\\) | \$(?=\S)[^$\n]*[\\^_={][^$\n]*(?<=\S)\$  # formulas
    | \b(?:https?|ftp)://[^\s<>"”»]*[^\s<>"”»).,;:!?'’] | \bwww\.[^\s<>]+[^\s<>).,;:!?]
    | (?<![\w.+-])[\w.+-]+@\w[\w-]*(?:\.\w[\w-]*)+    # e-mail addresses
    | (?<![\w@])@\w{2,}                               # names of accounts
    | &(?:[a-zA-Z]{2,10}|\#\d{2,6});                  # HTML entities
    | \\[\\`*_{}\[\]()#+.!|<>~-]                      # escaped punctuation
    """,
    re.VERBOSE | re.DOTALL,
)
_MASK = re.compile(r"\{ ?(\d{1,4}) ?\}")
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)[^>]*?(/?)>")
_VOID = frozenset({"br", "hr", "img", "input", "wbr", "source", "col"})


@dataclass(frozen=True, slots=True)
class Masked:
    """A text in which `{1}`, `{2}` ... stand for `values`."""

    text: str
    values: tuple[str, ...]

    def restored(self, text: str) -> str:
        """A translation of the text with the values restored; numbers without a value stay."""

        def value(mask: re.Match[str]) -> str:
            number = int(mask[1])
            return self.values[number - 1] if 1 <= number <= len(self.values) else mask[0]

        return _MASK.sub(value, text)

    def lost(self, text: str) -> Rejection | None:
        """Reject a translation of the text unless it has each number as often as the original."""
        found = Counter(int(number) for number in _MASK.findall(text))
        expected = Counter(range(1, len(self.values) + 1))
        for number in (expected - found) | (found - expected):
            shown = self.values[number - 1][:60] if 1 <= number <= len(self.values) else "nothing"
            verb = "is missing" if found[number] < expected[number] else "is there too often"
            return Rejection(RejectionReason.PLACEHOLDER_LOST, f"{{{number}}}, which stands for {shown!r}, {verb}")
        return _crossed(self.restored(text)) if _crossed(self.restored(self.text)) is None else None


@lru_cache(maxsize=4096)
def masked(text: str) -> Masked:
    """Mask what a translation copies."""
    values: list[str] = []

    def mask(found: re.Match[str]) -> str:
        values.append(found[0])
        return f"{{{len(values)}}}"

    return Masked(_OPAQUE.sub(mask, text), tuple(values))


def bare(text: str) -> str:
    """A text with the copied parts replaced by spaces, so that positions stay valid."""
    return blanked(_OPAQUE, text)


def has_words(text: str) -> bool:
    """Whether there is anything to translate in a text."""
    return any(map(str.isalpha, bare(text)))


def _crossed(text: str) -> Rejection | None:
    """Reject HTML elements that do not end in the order in which they began."""
    open_tags: list[str] = []
    for closing, name, empty in _TAG.findall(text):
        if empty or name.lower() in _VOID:
            continue
        if not closing:
            open_tags.append(name)
        elif not open_tags or open_tags.pop() != name:
            return Rejection(RejectionReason.PLACEHOLDER_LOST, f"the tag </{name}> is not where it belongs")
    return None
