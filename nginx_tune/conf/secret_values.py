"""Values of a configuration that are surely no secret, known by their form.

A place of free text (``fastcgi_param NAME …``, ``set``, the values of a ``map``) may hold
anything, so only what a secret cannot look like stays there: variables, switches, sizes and
times with their unit, addresses, paths, media types, names of hosts, and URLs without the parts
that can hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from nginx_tune.host.secret_texts import (
    REDACTED,
    SECRET_NAME,
    is_variables,
    looks_random,
    redact_text,
    redact_url,
)

_WORD_LIST = """
on off true false yes no none default always upgrade close keep-alive keepalive get head post
put patch delete options connect trace propfind mkcol copy move lock unlock http https ws wss
http/1.0 http/1.1 http/2.0 http/3.0 h2 h2c h3 gzip br zstd deflate identity bypass hit miss
expired stale updating revalidated exact volatile hostnames permanent redirect last break
if_not_empty nosniff deny sameorigin no-cache no-store private public immutable
must-revalidate any first any_first all ok pong healthy up alive epoch max strict lax utf-8
desktop mobile tablet bot www cert epoll if text code xff proxy_protocol binary ranges bytes
backup down redacted
"""
_WORDS = frozenset(_WORD_LIST.split())
"""Words of nginx, HTTP and the trade, in small letters."""
_MARKS = r"\s:/,;|()\[\]<>{}=&?*+~^!@.\"'_-"
_ONLY_VARIABLES = re.compile(rf"(?:\$(?:\{{\w+\}}|\w+)|[{_MARKS}])*(?:\$(?=[\s)\"']|$))?")
_QUANTITY = re.compile(
    r"-?\d{1,12}(?:\.\d{1,6})?(?:ms|us|[smhdwMy]|[kKmMgGtT][bB]?|%|r/[sm])|\d{1,3}|0x[0-9a-f]{1,4}"
    r"|(?:\d{1,6}(?:ms|[smhdwMy])){2,6}|\d\.\d{1,3}|[A-Za-z]{1,3}\d{0,2}"
)
_ADDRESS = re.compile(
    r"(?:\d{1,3}\.){3}\d{1,3}(?:/\d{1,2})?(?:-(?:\d{1,3}\.){3}\d{1,3})?(?::\d{1,5})?"
    r"|\[[0-9a-fA-F:.]{2,45}\](?::\d{1,5})?|(?=[0-9a-fA-F:]*:[0-9a-fA-F:]*:)[0-9a-fA-F:.]{2,45}"
    r"(?:/\d{1,3})?"
)
_HOST = re.compile(
    r"(?=[a-z0-9.-]{4,253}(?:$|:))(?:\*\.|\.)?(?:[a-z0-9](?:[a-z0-9-]{0,30})\.)+[a-z]{2,18}\.?"
    r"(?::\d{1,5})?|localhost(?::\d{1,5})?"
)
_MEDIA_TYPE = re.compile(
    r"(?:text|image|application|audio|video|font|multipart|model|message)/[a-z0-9.+*-]{1,60}"
    r"(?:;\s?charset=[\w-]{1,20})?"
)
_PATH = re.compile(r"(?:unix:)?/[^\s\"'?#;&=]*")
_FILE = re.compile(r"[\w$.{}-]{1,60}/[\w$./{}-]{0,200}\.(?:conf|html?|js|css|lua|json|pem|crt|key)")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,20}://\S+")
_KEYED = re.compile(r"(data|engine|store):", re.IGNORECASE)
_PAIR = re.compile(r"([A-Za-z_][\w.-]{0,60})=(.*)", re.DOTALL)
_OPTION = re.compile(r"(?:keys_zone|zone|shared|levels|timeout|interval|state)[=:][\w.:/$-]{1,80}")
_PIN = re.compile(r"((?:pin-value|pin-source|pin|passphrase)=)[^;&\s]+", re.IGNORECASE)


def is_ordinary(value: str) -> bool:
    """Whether a value is a word of nginx, HTTP and the trade."""
    return value.lower() in _WORDS


def is_harmless(value: str, names: Collection[str] = ()) -> bool:
    """Whether a value of free text is surely no secret.

    ``names``: what the configuration itself defines (thread pools, upstreams, zones), so that a
    word that names one of them is no secret.
    """
    if value == "" or value in names or value.lower() in _WORDS or _ONLY_VARIABLES.fullmatch(value):
        return True
    if any(form.fullmatch(value) for form in (_QUANTITY, _ADDRESS, _MEDIA_TYPE)):
        return True
    if _HOST.fullmatch(value):
        return not any(looks_random(label) for label in value.split("."))
    return bool(_PATH.fullmatch(value) or _FILE.fullmatch(value)) and _is_plain_path(value)


def free_value(value: str, names: Collection[str] = ()) -> str:
    """A value of a place that may hold anything: as it is where it is harmless, else redacted."""
    if is_harmless(value, names):
        return value
    if _URL.fullmatch(value):
        return url_value(value)
    words = re.split(r"[\s,;]+", value)
    if len(words) > 1 and all(is_harmless(word, names) for word in words):
        return value
    return REDACTED


def named_value(name: str, value: str, names: Collection[str] = ()) -> str:
    """The value behind a name: of a name that speaks of a secret only variables stay."""
    if SECRET_NAME.search(name):
        is_switch = value.lower() in {"", "on", "off", "0", "1"}
        return value if is_switch or is_variables(value) else REDACTED
    return free_value(value, names)


def strict_value(value: str, names: Collection[str] = ()) -> str:
    """An argument of a directive of which nothing is known: ``NAME=VALUE`` by its name."""
    pair = _PAIR.fullmatch(value)
    if _OPTION.fullmatch(value):
        return value
    if pair and not value.startswith("$"):
        return f"{pair[1]}={named_value(pair[1], pair[2], names)}"
    return free_value(value, names)


def plain_value(value: str) -> str:
    """An argument of a place for sizes, names, paths and the like: only what shows itself goes."""
    keyed = key_value(value)
    return redact_text(value) if keyed == value else keyed


def key_value(value: str) -> str:
    """A file of a key or certificate, or ``data:``, ``engine:`` or ``store:`` and the key.

    Source: ngx_ssl_load_certificate_key; ``data:$variable`` names no key.
    """
    match = _KEYED.match(value)
    if match is None:
        return redact_text(value)
    rest = value[match.end() :]
    return value if is_variables(rest) else f"{match[0]}{REDACTED}"


def url_value(value: str) -> str:
    """A URL, a URI or an address: what can hold a secret in one goes, the rest stays."""
    return redact_text(_PIN.sub(rf"\1{REDACTED}", redact_url(value)))


def stream_url(value: str) -> str:
    """A URL of a live stream, whose path ends in the key of the stream."""
    match = re.match(r"((?:rtmps?|srt)://[^/\s]*/?)(.+)", value, re.DOTALL)
    if match is None:
        return strict_value(value)
    return url_value(match[1]) + (match[2] if is_variables(match[2]) else REDACTED)


def environment_value(value: str) -> str:
    """``NAME`` or ``NAME=VALUE`` of the environment."""
    name, equals, rest = value.partition("=")
    if not equals or name in _KNOWN_ENVIRONMENT:
        return value
    is_path = rest.startswith("/") and not SECRET_NAME.search(name) and is_harmless(rest)
    return value if is_path or rest in {"", REDACTED} else f"{name}={REDACTED}"


_KNOWN_ENVIRONMENT = frozenset({
    "TZ", "LANG", "LC_ALL", "MALLOC_ARENA_MAX", "MALLOC_CONF", "GODEBUG", "NGINX_BPF", "PATH",
    "LD_PRELOAD", "LD_LIBRARY_PATH", "OPENSSL_CONF", "OPENSSL_ia32cap", "PERL5LIB", "HOSTNAME",
    "ASAN_OPTIONS",
})  # fmt: skip


def _is_plain_path(value: str) -> bool:
    return not any(looks_random(part) for part in re.split(r"[/.]", value))


__all__ = [
    "environment_value", "free_value", "is_harmless", "is_ordinary", "key_value", "named_value",
    "plain_value", "stream_url", "strict_value", "url_value",
]  # fmt: skip
