"""Markup: what a translation must keep of its original, and what no publishable text may contain."""

from __future__ import annotations

import html
import re
from collections import Counter

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason

# What a translation keeps character by character. Each pattern is linear: no unbounded repetition within another.
_KEPT = (
    ("code", re.compile(r"```.{0,20000}?```|~~~.{0,20000}?~~~", re.DOTALL)),
    ("code", re.compile(r"(?<!`)`[^`\n]{1,200}`(?!`)")),
    ("link", re.compile(r"https?://[^\s<>\"'”“»\]）\u3000-\u30ff\u3400-\u9fff，；：！？]+|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}")),
    ("target of a link", re.compile(r"\]\(\s*<?([^\s()<>]{1,500})")),
    ("placeholder", re.compile(
        r"\{\{[^{}\n]{1,80}\}\}|\$?\{[\w.]{0,60}(?:[,:][^{}\n]{0,40})?\}|\{\w{1,40}, ?(?:plural|select\w*)\b"
        r"|%\(\w{1,60}\)[a-zA-Z]|%(?:\d+\$)?[sdif@](?![A-Za-z0-9_])|%[A-Z_]{2,40}%"
        r"|\[\[[^\[\]\n]{1,80}\]\]|__[A-Z][A-Z_]{1,40}__|<\d{1,3}/?>|</\d{1,3}>"
    )),
    ("tag", re.compile(r"</?[a-zA-Z][\w-]{0,30}(?=[\s/>])")),
    ("mention", re.compile(r"(?<![\w@.])@\w{2,40}(?![\w.@-])")),
)  # fmt: skip
_BLOCKS = (
    ("headings", re.compile(r"^ {0,3}(#{1,6}) ", re.MULTILINE)),
    ("items of lists", re.compile(r"^ {0,12}(?:[-*+•]|(?=\d)()\d{1,3}[.)]) +(?=\S)", re.MULTILINE)),
    ("rows of tables", re.compile(r"^ {0,3}\|", re.MULTILINE)),
    ("quotations", re.compile(r"^ {0,3}>", re.MULTILINE)),
)
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_WRAPPED = 60  # characters: a line as long as this may have been wrapped
_TRAILING = ".,;:!?)…。，、！？；："


def preserved(text: str, original: str) -> Rejection | None:
    """Reject a translation that loses or adds code, a link, a placeholder, a tag, a line, or a block of Markdown."""
    for name, pattern in _KEPT:
        theirs, mine = _found(pattern, original), _found(pattern, text)
        if theirs != mine:
            lost = next(iter((theirs - mine) or (mine - theirs)))
            return _lost(f"the {name} {lost[:80]!r} is {'lost' if theirs - mine else 'added'}")
    for name, pattern in _BLOCKS:
        if pattern.findall(original) != pattern.findall(text):
            return _lost(f"its {name} are not those of the original")
    # The paragraphs match in number and in lines. A break after a long line can be a mere wrap.
    after, before = _PARAGRAPH.split(text.strip()), _PARAGRAPH.split(original.strip())
    kept = len(after) == len(before)
    for written, lines in zip(map(str.splitlines, after), map(str.splitlines, before), strict=False):
        wraps = sum(len(line) >= _WRAPPED and not line.endswith(("  ", "\\")) for line in lines[:-1])
        kept = kept and len(lines) - wraps <= len(written) <= max(len(lines), 1)
    return None if kept else _lost("its line breaks are not those of the original")


def _lost(detail: str) -> Rejection:
    return Rejection(RejectionReason.PLACEHOLDER_LOST, detail)


def _found(pattern: re.Pattern[str], text: str) -> Counter[str]:
    return Counter(match[match.lastindex or 0].rstrip(_TRAILING) for match in pattern.finditer(text))


# HTML elements that load, run or ask for something. Unknown elements do nothing, and may be placeholders.
_UNSAFE_TAGS = frozenset(
    (
        *("script", "iframe", "object", "embed", "style", "link", "meta", "base", "form", "input", "button"),
        *("textarea", "select", "svg", "math", "frame", "frameset", "applet", "template", "noscript", "audio", "video"),
        *("source", "portal", "body", "html", "head", "isindex", "layer", "marquee", "xml", "plaintext", "xmp"),
    )
)
_TAG = re.compile(r"<\s*/?\s*([a-zA-Z][a-zA-Z0-9:-]{0,30})(?=[\s/>]|$)")
_HANDLER = re.compile(r"<[a-zA-Z][^<>]{0,2000}?[\s\"'/](on[a-z]{3,30}|style|srcdoc|formaction)\s{0,20}=", re.IGNORECASE)
_BREAKS = re.compile(r"[\x00-\x20\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]+")
_TARGET = re.compile(
    r"(?:\]\(\s{0,20}<?|^\s{0,3}\[[^\]\n]{1,200}\]:\s{0,20}<?|(?:href|src|action|xlink:href|data)\s{0,20}=\s{0,20}[\"']?|<)"
    r"(?=([^)>\"']{1,300}))",
    re.IGNORECASE | re.MULTILINE,
)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{1,30}):", re.IGNORECASE)
_UNSAFE_SCHEMES = frozenset({"javascript", "vbscript", "data", "file", "blob", "livescript", "mocha", "about"})


def unsafe_markup(text: str) -> Rejection | None:
    """Reject HTML that loads or runs something, event handlers, and links with a scheme such as `javascript:`."""
    decoded = html.unescape(text) if "&" in text else text
    for version in {text, decoded}:
        for tag in _TAG.finditer(version):
            if tag[1].casefold() in _UNSAFE_TAGS or tag[1].casefold().startswith("svg:"):
                return Rejection(RejectionReason.UNSAFE_MARKUP, f"contains {tag[0]!r}")
        if handler := _HANDLER.search(version):
            return Rejection(RejectionReason.UNSAFE_MARKUP, f"contains {handler[1]!r}")
        for target in _TARGET.finditer(version):
            scheme = _SCHEME.match(_BREAKS.sub("", target[1]))
            if scheme and scheme[1].casefold() in _UNSAFE_SCHEMES:
                return Rejection(RejectionReason.UNSAFE_MARKUP, f"contains {scheme[0]!r}")
    return None
