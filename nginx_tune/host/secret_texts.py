"""Secrets in running text, known by their form alone: log lines, messages, URLs, command lines.

Where a configuration can be read, :mod:`nginx_tune.conf.secret_places` knows more: it goes by
the place where a value stands. Here nothing is known of the place, so only what looks like a
secret goes: user information and query values of URLs, credentials of HTTP headers, values
behind a name that speaks of a secret, PEM blocks, and tokens of well-known makers. Names of
files, numbers of lines, sizes, addresses and variables stay.

Source: RFC 3986 §3.2.1 (user information), RFC 7235 (credentials), RFC 7468 (PEM).
"""

from __future__ import annotations

import re

REDACTED = "redacted"

SECRET_NAME = re.compile(
    r"auth(?!or\b)|cookie|token|secret|passw|passphrase|passwd|pwd|(?:^|[-_.])pass$|api[-_]?key"
    r"|access[-_]?key|credential|signature|(?:^|[-_.])sig$|session|private|jwt|bearer|hmac|salt"
    r"|(?:^|[-_.])pin(?:$|[-_.])|^x-.*-key$|(?<!cache)_key$|dsn|webhook|license",
    re.IGNORECASE,
)
"""Names of headers, variables and parameters whose values are nobody's business."""

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
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"
    r"|\bglpat-[\w-]{16,}|\bxox[abprs]-[A-Za-z0-9-]{8,}|\b[sr]k_(?:live|test)_[A-Za-z0-9]{8,}"
    r"|\bAIza[\w-]{30,}|\bnpm_[A-Za-z0-9]{20,}|\bSG\.[\w-]{16,}\.[\w-]{16,}"
    r"|\beyJ[\w-]{6,}\.eyJ[\w-]{6,}\.[\w-]*|\$(?:apr1|1|2[aby]|5|6|argon2\w*|y)\$[^\s\"']{8,}"
    r"|\bhv[sb]\.[\w-]{16,}|\bpypi-[\w-]{16,}|\bdop_v1_[0-9a-f]{16,}"
)
"""Tokens that say whose they are: AWS, GitHub, GitLab, Slack, Stripe, Google, npm, SendGrid,
JSON Web Tokens, crypt(3), Vault, PyPI, DigitalOcean."""
_SEGMENT = re.compile(r"(?<=/)[A-Za-z0-9_~-]{16,}(?=/|$|[?#\s\"'])")


def _hide_named(match: re.Match[str]) -> str:
    """The value goes, but for what a message says of a file: ``/etc/passwd: Permission denied``."""
    is_file = match.string[: match.start()].endswith("/") and match[1].rstrip().endswith(":")
    return match[0] if is_file else f"{match[1]}{REDACTED}"


def redact_text(text: str) -> str:
    """The text without what looks like a secret; doing it twice changes nothing more."""
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
    """A URL without user information, values of its query, fragment and tokens in its path.

    Variables of nginx stay, since they are no values.
    """
    url, hash_mark, fragment = url.partition("#")
    url, mark, query = url.partition("?")
    url = _USER_INFO.sub(rf"\1{REDACTED}@", url)
    url = _TOKENS.sub(REDACTED, _SEGMENT.sub(_token_segment, url))
    query = "&".join(_query_part(part) for part in query.split("&")) if mark else ""
    kept = REDACTED if fragment and not fragment.startswith("$") else fragment
    return url + mark + query + hash_mark + kept


def looks_random(word: str) -> bool:
    """Whether a word looks like a token rather than a name: long, of letters and digits mixed.

    Sixteen characters with capitals, small letters and digits, or 32 hexadecimal digits.
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
    """Whether a text is variables of nginx and what parts them, and nothing else."""
    return bool(_VARIABLES.fullmatch(text))
