"""The one way a value gets into nginx.conf: quoted, or refused.

nginx's tokenizer ends a bare word at white space, ``;`` and ``{`` and takes quotes only at the
start of a word; inside double quotes a backslash escapes ``"`` and itself. Nothing escapes
``$``: most directives interpolate it, quoted or not. So a value from outside must not hold one;
only the tool's own words do, and those are known whole.

Source: ngx_conf_read_token() in src/core/ngx_conf_file.c; ngx_http_compile_complex_value().
"""

from __future__ import annotations

import re
import unicodedata

from nginx_tune.errors import UsageError

MOST_BYTES = 1024
"""nginx reads its file through a buffer of 4096 bytes, which a word must fit into."""
_BARE = re.compile(r"[A-Za-z0-9_./:@%+,=~^*!?&|<>()\[\]-]+", re.ASCII)
_OWN_VARIABLES = re.compile(
    r"(?:\$(?:request_uri|uri|disk|host|scheme|pid|connection|http_authorization))+"
    r"|\$scheme\|\$server_name:\$server_port\|\$host\|\$http_host\|\$http_x_forwarded_proto"
    r"\|\$http_x_forwarded_host\|\$proxy_host\|\$uri\$is_args\$args\|\$request_uri"
    r"\|\$http_accept_encoding"
    r"|\$scheme\$host(?:\|\$http_host\|\$server_port)?\$request_uri(?:\|\$http_accept_encoding)?"
    r"|(?:threads=pool_|cache_)\$disk",
    re.ASCII,
)


class Written(str):
    """Text that is nginx syntax already: it went through ``quote`` or ``comment``."""

    __slots__ = ()


def quote(value: str, *, own_words: bool = False) -> Written:
    """The value as one word of nginx's configuration language.

    ``own_words`` lets the tool's own variables through, such as ``threads=pool_$disk``.

    Errors: UsageError for what nginx has no escape for or no one means: ``$``, control
            characters, text that is no UTF-8, more than 1024 bytes.
    """
    if own_words and _OWN_VARIABLES.fullmatch(value):
        return Written(value)
    if "$" in value:
        raise UsageError(f"{_shown(value)}: '$' cannot be written to nginx.conf (no escape for it)")
    if any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in value):
        raise UsageError(
            f"{_shown(value)}: control characters and bytes that are no UTF-8 cannot be written "
            "to nginx.conf"
        )
    if len(value.encode()) > MOST_BYTES:
        raise UsageError(f"{_shown(value)}: longer than {MOST_BYTES} bytes")
    if _BARE.fullmatch(value):
        return Written(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return Written(f'"{escaped}"')


def comment(text: str) -> Written:
    """The text as the inside of a comment: one line, nothing that steers a terminal."""
    flat = " ".join(text.encode(errors="replace").decode().split())
    return Written("".join(c if c.isprintable() else "?" for c in flat))


def finalize(value: object) -> object:
    """What Jinja calls for every value that a template prints."""
    if isinstance(value, Written):
        return value
    return quote(str(value))


def _shown(value: str) -> str:
    return ascii(value[:60])
