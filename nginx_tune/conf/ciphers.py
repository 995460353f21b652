"""Which ciphers of an ``ssl_ciphers`` HTTP/2 may use over TLS 1.2.

HTTP/2 wants an ephemeral key exchange and an AEAD; a client may end the connection where the
handshake chose another one, and browsers do (``INADEQUATE_SECURITY``).
Source: RFC 9113, section 9.2.2 and appendix A; openssl-ciphers(1) for the words of a list.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Fault = Literal["only", "first"]
"""All that it allows is forbidden; what the server chooses first is."""
_SEPARATORS = re.compile(r"[:, ]+")
_EPHEMERAL = frozenset({"ECDHE", "EECDH", "KEECDH", "KECDHE", "ECDH", "DHE", "EDH", "KDHE", "KEDH"})
_AEAD = frozenset({"AESGCM", "AESCCM", "AESCCM8", "CHACHA20", "ARIAGCM", "GCM", "CCM", "CCM8"})
_NO_EPHEMERAL = frozenset({"RSA", "KRSA", "PSK", "KPSK", "SRP"})
_NO_AEAD = frozenset({"SHA", "SHA1", "SHA256", "SHA384", "MD5", "LOW", "MEDIUM", "EXP", "EXPORT"})
_NOT_OFFERED = (
    "3DES", "DES", "RC4", "CAMELLIA", "SEED", "IDEA", "ARIA", "NULL", "PSK", "SRP", "ADH", "AECDH",
    "EXP", "LOW", "MEDIUM", "DHE-", "EDH", "KRB5", "GOST",
)  # fmt: skip
"""What no browser offers, so that its place in the list decides nothing."""


class _Word(NamedTuple):
    """One word of a list: what it has first, and for which certificates."""

    is_permitted: bool
    is_offered: bool
    keys: frozenset[str]


def http2_fault(ciphers: str, *, server_chooses: bool) -> Fault | None:
    """What is wrong with a list of ciphers for HTTP/2 over TLS 1.2; null for nothing."""
    written = [word for word in _SEPARATORS.split(ciphers) if word]
    out = {word[1:].upper() for word in written if word[0] in "!-"}
    kept = [word for word in written if word[0] not in "!-+@" and not word.startswith("TLS_")]
    if any("=" in word for word in kept):  # a profile of the host
        return None
    words = [_word(word.upper(), out) for word in kept]
    if not words:
        return None
    if not any(word.is_permitted for word in words):
        return "only"
    if not server_chooses:
        return None
    for key in ("RSA", "ECDSA"):
        usable = [word for word in words if key in word.keys and word.is_offered]
        if usable and not usable[0].is_permitted:
            return "first"
    return None


def _word(word: str, out: set[str]) -> _Word:
    is_offered = not word.startswith(_NOT_OFFERED)
    if "-" in word:
        parts = set(word.split("-"))
        permitted = bool(parts & _EPHEMERAL and parts & (_AEAD | {"POLY1305"}))
        keys = frozenset({"ECDSA"} if "ECDSA" in parts else {"RSA"})
        return _Word(permitted and not out & parts, is_offered, keys)
    parts = set(word.split("+"))
    # A word for many begins with an ephemeral AEAD, in OpenSSL's own order.
    permitted = not parts & (_NO_EPHEMERAL | _NO_AEAD) and is_offered
    keys = frozenset({"RSA"} if parts & _NO_EPHEMERAL or "ARSA" in parts else {"RSA", "ECDSA"})
    return _Word(permitted and not _takes_away(out), is_offered, keys)


def _takes_away(out: set[str]) -> bool:
    """Whether what is taken out of the list leaves no ephemeral AEAD."""
    return bool(out & {"ECDHE", "EECDH", "KEECDH", "KECDHE", "ECDH", "AESGCM", "AEAD"})
