"""Regular expressions of a configuration: their places, and faults that no PCRE accepts.

Python's ``re`` reads another language, so a fault is only what PCRE 8 and PCRE2 both reject in any
version: a group or a class that does not end, a quantifier with nothing before it, and a group
without a valid name. Source: pcre2pattern(3), ngx_regex_compile.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from nginx_tune.conf.values import is_placeholder

_UNREAD = re.compile(r"\\Q|\\E|\(\*|\(\?[#C(]|\(\?\^?[a-wyzA-Z-]*x")
"""Quoted parts, verbs, comments, callouts, conditions and free spacing. They change the meaning of
the text after them, so a pattern with one of them is not judged."""
_TOKEN = re.compile(
    r"""
    (?P<escape>\\.)
  | (?P<class>\[(?:\^?\]|\^(?!\])|(?![\^\]]))(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\])
  | (?P<unclosed>\[)
  | (?P<named>\(\?(?:P?<(?![=!])|')(?P<name>[^>')]*)(?P<end>[>']?))
  | (?P<open>\((?:\?(?:<?[=!]|[:>|]|[a-zA-Z-]+:)|(?!\?)))
  | (?P<whole>\(\?[^()]*\))
  | (?P<unread>\(\?)
  | (?P<close>\))
  | (?P<either>\|)
  | (?P<quantifier>[*+?][?+]?)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATORS = frozenset({"~", "~*", "!~", "!~*"})


def patterns_of(name: str, args: Sequence[str]) -> Iterator[str]:
    """The regular expressions among the arguments of a directive."""
    if name == "location" and args:
        if args[0] in {"~", "~*"}:
            yield args[-1]
        elif args[0].startswith("~"):
            yield args[0].lstrip("~*")
    elif name in {"server_name", "valid_referers"}:
        yield from (arg[1:] for arg in args if arg.startswith("~"))
    elif name in {"rewrite", "fastcgi_split_path_info"}:
        yield from args[:1]
    elif name == "if":
        words = [*args[:-1], args[-1].removesuffix(")")] if args else []
        yield from (word for operator, word in pairwise(words) if operator in _OPERATORS)


def pattern_fault(pattern: str) -> str:
    """The reason why no PCRE compiles a pattern; empty if one may."""
    unnamed = pattern.replace("(?<", "(").replace("(?P<", "(")  # "<name>" may be a placeholder
    if is_placeholder(unnamed) or _UNREAD.search(pattern) or not pattern.isascii():
        return ""
    depth, before = 0, "open"
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup if token["named"] is None else "named"
        if kind == "unread":
            return ""
        if kind == "unclosed":
            return 'a "[" without its "]"'
        if kind == "named" and not _is_name(token):
            return f'"{token["name"]}" is not a valid group name'
        if kind == "quantifier" and before in {"open", "named", "either", "quantifier"}:
            return f'nothing to repeat before "{token[0]}"'
        depth += kind in {"named", "open"}
        depth -= kind == "close"
        if depth < 0:
            return 'a ")" without its "("'
        before = kind or ""
    return 'a "(" without its ")"' if depth else ""


def _is_name(group: re.Match[str]) -> bool:
    return bool(group["end"]) and _NAME.fullmatch(group["name"]) is not None
