"""Taking out of a capture what is nobody else's business.

Serial numbers and world-wide names, MAC and IP addresses, UUIDs and values on command lines
go. The same secret becomes the same word everywhere, in questions too, so that a replay finds
its way from one answer to the next. A capture never holds environments or file contents of a
dataset: nothing asks for them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

import msgspec

from nginx_tune.documents.capture import Answer, Capture, Request
from nginx_tune.host.recording import from_bytes, to_bytes

_UUID = re.compile(r"[0-9a-fA-F]{8}[-_](?:[0-9a-fA-F]{4}[-_]){3}[0-9a-fA-F]{12}(?![0-9a-fA-F])")
"""Also behind other letters (``pod6f1c…``) and as systemd spells it in a slice, with ``_``."""
_LVM_UUID = re.compile(r"(?<=LVM-)[A-Za-z0-9]{32,64}\b")
_MAC = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:])")
_MAC_NAME = re.compile(r"(?<=\benx)[0-9a-f]{12}\b")
"""In a link's predictable name."""
_WWN = re.compile(r"\b(?:0x|naa\.|eui\.|nvme\.|3)[0-9a-fA-F]{16,64}\b")
_BY_ID = re.compile(r"(?<=/dev/disk/by-id/)\S+")
_IPV4 = re.compile(r"(?<![\w.-])(?<!(?<!/)/)(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.-])")
"""Not behind a name, a dash or a single slash: ``openresty/1.21.4.1`` is no address."""
_IPV6 = re.compile(r"(?<![\w:.])[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?![\w:])")
_NOBODYS = frozenset({"0.0.0.0", "127.0.0.1", "::", "::1"})  # noqa: S104  # nothing is bound
"""Addresses that are the same everywhere."""
_SERIAL_FILES = re.compile(r"/(?:serial|wwid|wwn|eui|nguid|uuid|vpd_pg\w+|address)$")
_CMDLINE = re.compile(r"^read /proc/[0-9]+/cmdline$")
_MAPS = re.compile(r"^read /proc/[0-9]+/maps$")
_ADDRESSED = re.compile(
    r"^(?:read /proc/\w+/mountinfo|read /(?!proc/|sys/)|real /|list /|link /|dataset |links"
    r"|listening )"
)
"""Questions whose answers can hold IP addresses (``0::/`` of a cgroup reads like one)."""
_KEPT_OPTIONS = frozenset({"-c", "-p", "-e"})
"""Options of nginx whose values are paths that the facts name."""


def redact(capture: Capture) -> Capture:
    """The capture without secrets; doing it twice changes nothing more."""
    words = _Words()
    answers = {}
    for question, answer in capture.answers.items():
        plain = _fitting(words, question, key=True)
        answers[plain(question)] = Answer(
            value=_map(_fitting(words, question), answer.value), error=_map(plain, answer.error)
        )
    everywhere = _fitting(words, "dataset ")
    request = msgspec.convert(_map(everywhere, msgspec.to_builtins(capture.request)), Request)
    return msgspec.structs.replace(capture, request=request, answers=answers)


class _Words:
    """The word that stands for each secret, numbered as they come."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def replace(self, pattern: re.Pattern[str], kind: str, text: str) -> str:
        return pattern.sub(lambda match: self._word(kind, match[0]), text)

    def replace_ipv6(self, text: str) -> str:
        def word(match: re.Match[str]) -> str:
            try:
                ipaddress.IPv6Address(match[0])
            except ValueError:
                return match[0]
            return match[0] if match[0] in _NOBODYS else self._word("address", match[0])

        return _IPV6.sub(word, text)

    def _word(self, kind: str, secret: str) -> str:
        if secret in _NOBODYS:
            return secret
        if re.fullmatch(rf"{kind}-[0-9]+", secret):
            return secret
        if secret not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[secret] = f"{kind}-{self._counts[kind]}"
        return self._known[secret]


def _fitting(words: _Words, question: str, *, key: bool = False) -> Callable[[str], str]:
    """What to do with the texts of one question, or with the question itself."""
    if not key and _CMDLINE.match(question):
        return _redact_cmdline
    if not key and _SERIAL_FILES.search(question):
        return _redact_serial
    if not key and _MAPS.match(question):
        return _redact_maps

    def apply(text: str) -> str:
        for pattern, kind in (
            (_UUID, "uuid"),
            (_LVM_UUID, "uuid"),
            (_MAC, "mac"),
            (_MAC_NAME, "mac"),
            (_BY_ID, "disk"),
        ):
            text = words.replace(pattern, kind, text)
        if key or _ADDRESSED.match(question):
            text = words.replace(_WWN, "wwn", text)
            text = words.replace_ipv6(words.replace(_IPV4, "address", text))
        return text

    return apply


def _redact_serial(text: str) -> str:
    """``LVM-…`` and ``mpath-…`` tell what a device is; what follows tells which."""
    kind, dash, _ = text.partition("-")
    return f"{kind}-redacted\n" if dash and kind.isalpha() else "redacted\n"


def _redact_maps(text: str) -> str:
    """The files that are mapped, without where: addresses would help whoever attacks it."""
    fields = (line.split(None, 5) for line in text.splitlines())
    paths = dict.fromkeys(words[5] for words in fields if len(words) == 6)  # noqa: PLR2004
    return "".join(f"0-0 r--p 0 00:00 0 {path}\n" for path in paths if path.startswith("/"))


def _redact_cmdline(text: str) -> str:
    """The command line of an nginx with the values of all but its path options taken out."""
    title, separator, rest = text.partition(": master process ")
    if not separator:
        words = text.split("\0")
        return "\0".join(_redact_words(words, words[:1]))
    words = rest.rstrip("\0").split(" ")
    return f"{title}{separator}{' '.join(_redact_words(words, words[:1]))}\0"


def _redact_words(words: list[str], kept: list[str]) -> list[str]:
    keep_next = False
    result = list(kept)
    for word in words[len(kept) :]:
        option = word[:2]
        if option in _KEPT_OPTIONS or keep_next or word in {"", "-g", "-q"}:
            result.append(word)
        elif result[-1] != "redacted":
            result.append("redacted")
        keep_next = word in _KEPT_OPTIONS
    return result


def _map(function: Callable[[str], str], value: Any) -> Any:
    """The value with every text in it changed, names in mappings among them."""
    if isinstance(value, str):
        return function(value)
    if isinstance(value, list):
        return [_map(function, part) for part in value]
    if isinstance(value, dict):
        if isinstance(value.get("base64"), str):
            return from_bytes(
                function(to_bytes(value).decode(errors="surrogateescape")).encode(
                    errors="surrogateescape"
                )
            )
        return {function(key): _map(function, part) for key, part in value.items()}
    return value
