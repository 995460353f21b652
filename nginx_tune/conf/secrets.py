"""Taking secrets out of a configuration that somebody else will read.

What stays is what the product looks at: directives, their places, sizes, paths. What goes is
every comment and every value that is there to be secret, each replaced on its own line, so that
line numbers stay true. A file that cannot be parsed goes whole: nobody can say what is secret
in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nginx_tune.conf.directive import Block, Directive, Source
from nginx_tune.conf.lexer import ParseFault
from nginx_tune.conf.parser import parse_block

REDACTED = "redacted"
_LEFT_OUT = b"# left out: this file could not be parsed"

_SECRET_NAME = re.compile(
    r"auth|cookie|token|secret|passw|passphrase|api[-_]?key|credential|signature|session|private"
    r"|^x-.*-key$|_key$",
    re.IGNORECASE,
)
"""Names of headers, variables and parameters whose values are nobody's business."""
_ALL_VALUES = frozenset({
    "secure_link_secret", "secure_link_md5", "auth_jwt_key", "auth_jwt_key_file",
    "proxy_ssl_password_file", "perl_set", "perl", "js_var", "otel_exporter", "zone_sync_ssl_name",
})  # fmt: skip
"""Directives of which no value stays."""
_NAMED_VALUES = frozenset({
    "proxy_set_header", "grpc_set_header", "add_header", "add_trailer", "fastcgi_param",
    "uwsgi_param", "scgi_param", "set", "proxy_cookie_path", "more_set_headers",
    "more_set_input_headers", "header", "env",
})  # fmt: skip
"""Directives of a name and a value: the value goes when the name says that it is a secret."""
_ENVIRONMENT = re.compile(r"^([A-Za-z_]\w*)=.+", re.DOTALL)
_COMPARED = re.compile(r"^(?![!=~*]{1,3}$)[^)]+")
"""What a condition compares with: neither its operator nor its bracket."""
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY_SECRET = re.compile(
    r"([?&][\w.-]*(?:key|token|secret|passw\w*|sig)[\w.-]*=)[^&\s\"']+", re.IGNORECASE
)
_INLINE_KEY = re.compile(r"^(data|engine|store):", re.IGNORECASE)
_BEARER = re.compile(r"\b(Basic|Bearer|Digest|Negotiate)\s+\S+", re.IGNORECASE)


def redact_configuration(data: bytes) -> bytes:
    """The file without comments and secret values; doing it twice changes nothing more."""
    source = Source.decode("", data)
    try:
        block = parse_block(source)
    except ParseFault:
        return _LEFT_OUT + b"\n"
    text = source.text
    # Between directives stand only blanks and comments.
    parts = []
    at = 0
    for start, end, written in _pieces(block, text, secret_names=False):
        parts += [_blanks(text[at:start]), written]
        at = end
    parts.append(_blanks(text[at:]))
    return (source.mark + "".join(parts)).encode("utf-8", "surrogateescape")


def _pieces(block: Block, text: str, *, secret_names: bool) -> Iterator[tuple[int, int, str]]:
    """Every directive and brace: where it starts and ends, and what is written in its place."""
    for directive in block.directives:
        name = REDACTED if secret_names else directive.name
        yield directive.start, directive.end, _written(directive, name, text)
        if directive.block is not None:
            if directive.name.endswith("_by_lua_block"):
                source = text[directive.end : directive.close]
                yield directive.end, directive.close, "\n" * source.count("\n")
            keyed = directive.name == "map" and bool(_SECRET_NAME.search(directive.value))
            yield from _pieces(directive.block, text, secret_names=keyed)
            yield directive.close, directive.close + 1, "}"


def _written(directive: Directive, name: str, text: str) -> str:
    """A directive as it stands, or written anew where something in it must go."""
    original = text[directive.start : directive.end]
    args = _kept_arguments(directive)
    has_comment = original.count("#") > sum(arg.count("#") for arg in directive.args)
    if (name, args) == (directive.name, directive.args) and not has_comment:
        return original
    words = [name, *map(_quoted, args)]
    lines = "\n" * original.count("\n")
    return " ".join(words) + lines + (" {" if directive.block is not None else ";")


def _kept_arguments(directive: Directive) -> tuple[str, ...]:
    name, args = directive.name, directive.args
    if name in _ALL_VALUES or name.endswith(("_password", "_passphrase")):
        return (REDACTED,) * len(args)
    if name == "if" and _SECRET_NAME.search(directive.value):
        return (args[0], *(_COMPARED.sub(REDACTED, arg) for arg in args[1:]))
    if name == "env":
        return tuple(_ENVIRONMENT.sub(rf"\1={REDACTED}", arg) for arg in args)
    if name in _NAMED_VALUES and len(args) > 1 and _SECRET_NAME.search(args[0]):
        return (args[0], *(REDACTED for _ in args[1:]))
    return tuple(map(_kept_text, args))


def _kept_text(argument: str) -> str:
    if _INLINE_KEY.match(argument):
        return argument.partition(":")[0] + f":{REDACTED}"
    argument = _USER_INFO.sub(f"{REDACTED}@", argument)
    argument = _BEARER.sub(rf"\1 {REDACTED}", argument)
    return _QUERY_SECRET.sub(rf"\1{REDACTED}", argument)


def _quoted(argument: str) -> str:
    if re.fullmatch(r"[^\s\"'\\;{}#$]+", argument):
        return argument
    return '"' + argument.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _blanks(text: str) -> str:
    """What lies between directives, with comments emptied."""
    return re.sub(r"#[^\n]*", _emptied, text)


def _emptied(comment: re.Match[str]) -> str:
    if comment[0] == _LEFT_OUT.decode():
        return comment[0]
    return "#\r" if comment[0].endswith("\r") else "#"
