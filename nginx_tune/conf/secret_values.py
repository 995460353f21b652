"""Redaction by form: values that cannot be secrets, and parts of a text that look like secrets.

Free text in a configuration (``fastcgi_param NAME …``, ``set``, the values of a ``map``) may hold
anything. Only values that cannot be secrets are shown there: variables, switches, sizes and times
with their unit, addresses, paths, media types, host names, and URLs without the parts that can hold
a secret.

In a log line, a message or a command line, the place of a value is not known. Only text that looks
like a secret is hidden: user information and query values of URLs, credentials of HTTP headers,
values after a name that suggests a secret, PEM blocks, and tokens of well-known services. File
names, line numbers, sizes, addresses and variables are shown. Where a configuration can be read,
:mod:`nginx_tune.conf.secret_places` is more precise: it judges a value by its place.

Source: RFC 3986 §3.2.1 (user information), RFC 7235 (credentials), RFC 7468 (PEM).
"""

import re
from collections.abc import Collection

REDACTED = "redacted"

SECRET_NAME = re.compile(
    r"auth(?!or\b)|cookie|token|secret|passw|passphrase|passwd|pwd|(?:^|[-_.])pass$|api[-_]?key"
    r"|access[-_]?key|credential|signature|(?:^|[-_.])sig$|session|private|jwt|bearer|hmac|salt"
    r"|(?:^|[-_.])pin(?:$|[-_.])|^x-.*-key$|(?<!cache)_key$|dsn|webhook|license",
    re.IGNORECASE,
)
"""Names of headers, variables and parameters with secret values."""

_PEM = re.compile(
    r"-----BEGIN ([A-Z0-9 ]{1,40})-----(?!redacted)"
    r"(?:(?!-----).){0,100000}(?:-----END [A-Z0-9 ]{1,40}-----)?",
    re.DOTALL,
)
_USER_INFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,20}://)[^/@\s\"'<>]{1,512}@")
_QUERY_VALUE = re.compile(r"([?&;](?:amp;)?[^\s=&;\"'#?()|]{1,128}=)(?!\$)([^&\s\"'#;>)\\]+)")
_BARE_QUERY = re.compile(
    r"((?:[a-z][a-z0-9+.-]{1,20}://[^\s\"'?#<>]+|\b[A-Z]{3,10} /[^\s\"'?]*)\?)(?!\$)"
    r"([^\s\"'#=&>]+)(?=[\s\"'#>]|$)"
)
"""A query without names, of a URL or of a request line."""
_CREDENTIALS = re.compile(
    r"\b(Basic|Bearer|Digest|Negotiate|Token|ApiKey)(\s+)(?!\$|redacted\b|realm=)"
    r"([A-Za-z0-9+/=_.~:-]{8,})"
)
_HEADER = re.compile(
    r"\b(Authorization|Proxy-Authorization|Cookie|Set-Cookie|X-[A-Za-z-]*(?:Key|Token|Secret))"
    r"(:\s*)(?!\$)([^\r\n\"']+)",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"((?<![\w$-])[\w.-]{0,64}?(?:passw(?:or)?d|passwd|pwd|secret|token|api[-_]?key|passphrase"
    r"|access[-_]?key|private[-_]?key|credentials?|pin-value|_pass|_pin|signature)[\w.-]{0,16}"
    r"[\"']?\s?[=:]\s?[\"']?)(?!\$|redacted\b)([^\s\"'&,;<>)\]}]+)",
    re.IGNORECASE,
)
_TOKENS = re.compile(
    r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}\b|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|xox[abprs]-[A-Za-z0-9-]{8,}|[sr]k_(?:live|test)_[A-Za-z0-9]{8,}"
    r"|AIza[\w-]{30,}|npm_[A-Za-z0-9]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|eyJ[\w-]{6,}\.eyJ[\w-]{6,}\.[\w-]*|hv[sb]\.[\w-]{16,}|pypi-[\w-]{16,}"
    r"|dop_v1_[0-9a-f]{16,})|\$(?:apr1|1|2[aby]|5|6|argon2\w*|y)\$[^\s\"']{8,}"
)
"""Tokens that their form identifies: AWS, GitHub, GitLab, Slack, Stripe, Google, npm, SendGrid,
JSON Web Tokens, crypt(3), Vault, PyPI, DigitalOcean."""
_SEGMENT = re.compile(r"(?<=/)[A-Za-z0-9_~-]{16,}(?=/|$|[?#\s\"'])")


def _hide_named(match: re.Match[str]) -> str:
    """The match with its value hidden, unless it is a message about a file."""
    is_file = match.string[: match.start()].endswith("/") and match[1].rstrip().endswith(":")
    return match[0] if is_file else f"{match[1]}{REDACTED}"


def redact_text(text: str) -> str:
    """The text without anything that looks like a secret; idempotent."""
    if "-----BEGIN" in text:
        text = _PEM.sub(rf"-----BEGIN \1-----{REDACTED}", text)
    if "://" in text:
        text = _USER_INFO.sub(rf"\1{REDACTED}@", text)
    if "?" in text or "&" in text:
        text = _QUERY_VALUE.sub(rf"\1{REDACTED}", text)
        text = _BARE_QUERY.sub(rf"\1{REDACTED}", text)
    text = _HEADER.sub(rf"\1\2{REDACTED}", text)
    text = _CREDENTIALS.sub(rf"\1\2{REDACTED}", text)
    text = _NAMED.sub(_hide_named, text)
    return _TOKENS.sub(REDACTED, text)


def redact_url(url: str) -> str:
    """A URL without user information, query values, fragment, and tokens in its path.

    Variables of nginx are kept.
    """
    url, hash_mark, fragment = url.partition("#")
    url, mark, query = url.partition("?")
    url = _USER_INFO.sub(rf"\1{REDACTED}@", url)
    url = _TOKENS.sub(REDACTED, _SEGMENT.sub(_token_segment, url))
    query = "&".join(_query_part(part) for part in query.split("&")) if mark else ""
    kept = REDACTED if fragment and not fragment.startswith("$") else fragment
    return url + mark + query + hash_mark + kept


def looks_random(word: str) -> bool:
    """True if a word looks like a token: long, with letters and digits mixed.

    Sixteen characters with uppercase, lowercase and digits, or 32 hexadecimal digits.
    """
    if re.fullmatch(r"[0-9a-fA-F-]{32,}", word):
        return True
    return len(word) >= 16 and all(  # noqa: PLR2004  # as the docstring says
        re.search(kind, word) for kind in ("[A-Z]", "[a-z]", "[0-9]")
    )


def _token_segment(match: re.Match[str]) -> str:
    return REDACTED if looks_random(match[0]) else match[0]


def _query_part(part: str) -> str:
    name, equals, value = part.partition("=")
    if not equals:
        return name if not name or name.startswith("$") or name == REDACTED else REDACTED
    return name + equals + (value if not value or is_variables(value) else REDACTED)


_VARIABLES = re.compile(r"(?:\$(?:\{\w+\}|\w+)[/:.,;|_ -]*)+")


def is_variables(text: str) -> bool:
    """True if a text consists only of variables of nginx and separators."""
    return bool(_VARIABLES.fullmatch(text))


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
"""Words of nginx, HTTP and related terms, lowercase."""
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
    """True for a word of nginx, HTTP and related terms."""
    return value.lower() in _WORDS


def is_harmless(value: str, names: Collection[str] = ()) -> bool:
    """True if a value of free text is certainly not a secret.

    ``names`` are those that the configuration defines (thread pools, upstreams, zones).
    """
    if value == "" or value in names or value.lower() in _WORDS or _ONLY_VARIABLES.fullmatch(value):
        return True
    if any(form.fullmatch(value) for form in (_QUANTITY, _ADDRESS, _MEDIA_TYPE)):
        return True
    if _HOST.fullmatch(value):
        return not any(looks_random(label) for label in value.split("."))
    return bool(_PATH.fullmatch(value) or _FILE.fullmatch(value)) and _is_plain_path(value)


def free_value(value: str, names: Collection[str] = ()) -> str:
    """A value that may be anything: unchanged if harmless, else redacted."""
    if is_harmless(value, names):
        return value
    if _URL.fullmatch(value):
        return url_value(value)
    words = re.split(r"[\s,;]+", value)
    if len(words) > 1 and all(is_harmless(word, names) for word in words):
        return value
    return REDACTED


def named_value(name: str, value: str, names: Collection[str] = ()) -> str:
    """The value after ``name``; if the name suggests a secret, only variables and switches show."""
    if SECRET_NAME.search(name):
        is_switch = value.lower() in {"", "on", "off", "0", "1"}
        return value if is_switch or is_variables(value) else REDACTED
    return free_value(value, names)


def strict_value(value: str, names: Collection[str] = ()) -> str:
    """An argument of an unknown directive as shown; ``NAME=VALUE`` is judged by its name."""
    pair = _PAIR.fullmatch(value)
    if _OPTION.fullmatch(value):
        return value
    if pair and not value.startswith("$"):
        return f"{pair[1]}={named_value(pair[1], pair[2], names)}"
    return free_value(value, names)


def plain_value(value: str) -> str:
    """An argument for sizes, names, paths and the like: only recognisable secrets are hidden."""
    keyed = key_value(value)
    return redact_text(value) if keyed == value else keyed


def key_value(value: str) -> str:
    """The file of a key or certificate; text after ``data:``, ``engine:``, ``store:`` is hidden.

    Source: ngx_ssl_load_certificate_key. ``data:$variable`` contains no key.
    """
    match = _KEYED.match(value)
    if match is None:
        return redact_text(value)
    rest = value[match.end() :]
    return value if is_variables(rest) else f"{match[0]}{REDACTED}"


def url_value(value: str) -> str:
    """A URL, URI or address without the parts of it that can hold a secret."""
    return redact_text(_PIN.sub(rf"\1{REDACTED}", redact_url(value)))


def stream_url(value: str) -> str:
    """A URL of a live stream, whose path ends in the key of the stream."""
    match = re.match(r"((?:rtmps?|srt)://[^/\s]*/?)(.+)", value, re.DOTALL)
    if match is None:
        return strict_value(value)
    return url_value(match[1]) + (match[2] if is_variables(match[2]) else REDACTED)


def environment_value(value: str) -> str:
    """``NAME`` or ``NAME=VALUE`` of the environment; the value is hidden unless it is harmless."""
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
