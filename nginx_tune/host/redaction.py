"""The redaction of secrets in recorded answers, on plain JSON values.

Serial numbers and world-wide names, MAC and IP addresses, UUIDs and values on command lines are
replaced. The same secret becomes the same word everywhere, in questions too, so that a replay
finds its answers. No question asks for environments or contents of datasets.

This file is part of the collector: standard library, Python 3.6.
"""

import base64
import ipaddress
import re
from typing import Any, Callable, Dict, List, Match, Pattern, Tuple

_UUID = re.compile(r"[0-9a-fA-F]{8}[-_](?:[0-9a-fA-F]{4}[-_]){3}[0-9a-fA-F]{12}(?![0-9a-fA-F])")
"""A UUID, also after other letters (``pod6f1c…``), and with ``_`` as in systemd's slices."""
_LVM_UUID = re.compile(r"(?<=LVM-)[A-Za-z0-9]{32,64}\b")
_MAC = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:])")
_MAC_NAME = re.compile(r"(?<=\benx)[0-9a-f]{12}\b")
"""The MAC address in the predictable name of a link."""
_WWN = re.compile(r"\b(?:0x|naa\.|eui\.|nvme\.|3)[0-9a-fA-F]{16,64}\b")
_BY_ID = re.compile(r"(?<=/dev/disk/by-id/)\S+")
_IPV4 = re.compile(r"(?<![\w.-])(?<!(?<!/)/)(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.-])")
"""An IPv4 address, but not after a name, a dash or a single slash, as in ``openresty/1.21.4.1``."""
_IPV6 = re.compile(r"(?<![\w:.])[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?![\w:])")
_NOBODYS = frozenset({"0.0.0.0", "127.0.0.1", "::", "::1"})  # noqa: S104  # nothing is bound
"""Addresses that are the same on every host."""
_SERIAL_FILES = re.compile(r"/(?:serial|wwid|wwn|eui|nguid|uuid|vpd_pg\w+|address)$")
_CMDLINE = re.compile(r"^read /proc/[0-9]+/cmdline$")
_MAPS = re.compile(r"^read /proc/[0-9]+/maps$")
_UNIT = re.compile(r"^read /(?:\w+/)*systemd/sys")
_ADDRESSED = re.compile(
    r"^(?:read /proc/\w+/mountinfo|read /(?!proc/|sys/)|real /|list /|link /|dataset |links"
    r"|listening )"
)
"""Questions whose answers can contain IP addresses; a cgroup's ``0::/`` only looks like one."""
_KEPT_OPTIONS = frozenset({"-c", "-p", "-e"})
"""nginx's options with paths, which the facts show anyway."""


def redact_answers(
    answers: Dict[str, Dict[str, Any]], request: Dict[str, Any]
) -> Tuple[Dict[str, Dict[str, Any]], Dict[str, Any]]:
    """The answers and the request without secrets; idempotent."""
    words = _Words()
    kept = {}
    for question, answer in answers.items():
        plain = _fitting(words, question, True)
        kept[plain(question)] = {
            "value": _map(_fitting(words, question, False), answer.get("value")),
            "error": _map(plain, answer.get("error")),
        }
    return kept, _map(_fitting(words, "dataset ", False), request)


class _Words:
    """The words that replace secrets, numbered in order of appearance."""

    def __init__(self) -> None:
        self._known: Dict[str, str] = {}
        self._counts: Dict[str, int] = {}

    def replace(self, pattern: "Pattern[str]", kind: str, text: str) -> str:
        return pattern.sub(lambda match: self._word(kind, match.group()), text)

    def replace_ipv6(self, text: str) -> str:
        def word(match: "Match[str]") -> str:
            try:
                ipaddress.IPv6Address(match.group())
            except ValueError:
                return match.group()
            return self._word("address", match.group())

        return _IPV6.sub(word, text)

    def _word(self, kind: str, secret: str) -> str:
        if secret in _NOBODYS or re.match(kind + r"-[0-9]+$", secret):
            return secret
        if secret not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[secret] = "{}-{}".format(kind, self._counts[kind])
        return self._known[secret]


def _fitting(words: _Words, question: str, is_key: bool) -> Callable[[str], str]:
    """The function that redacts the texts of an answer to a question, or the question itself."""
    if not is_key:
        for pattern, change in (
            (_CMDLINE, _redact_cmdline),
            (_UNIT, _redact_unit),
            (_SERIAL_FILES, _redact_serial),
            (_MAPS, _redact_maps),
        ):
            if pattern.search(question):
                return change

    def apply(text: str) -> str:
        for pattern, kind in (
            (_UUID, "uuid"),
            (_LVM_UUID, "uuid"),
            (_MAC, "mac"),
            (_MAC_NAME, "mac"),
            (_BY_ID, "disk"),
        ):
            text = words.replace(pattern, kind, text)
        if is_key or _ADDRESSED.match(question):
            text = words.replace(_WWN, "wwn", text)
            text = words.replace_ipv6(words.replace(_IPV4, "address", text))
        return text

    return apply


def _redact_serial(text: str) -> str:
    """An identifier reduced to the kind of device (``LVM-…``, ``mpath-…``)."""
    kind, dash, rest = text.strip().partition("-")
    if not dash or not kind.isalpha():
        return "redacted\n"
    pool = "-tpool" if rest.endswith("-tpool") else ""
    return "{}-redacted{}\n".format(kind, pool)


def _redact_maps(text: str) -> str:
    """The mapped files without their addresses, which would help an attacker."""
    fields = (line.split(None, 5) for line in text.splitlines())
    paths = {words[5]: None for words in fields if len(words) == 6}
    return "".join("0-0 r--p 0 00:00 0 {}\n".format(path) for path in paths if path[0] == "/")


def _redact_unit(text: str) -> str:
    """The sections and descriptor limits of a unit file, without environments and commands."""
    lines = (line.strip() for line in text.splitlines())
    kept = (
        line for line in lines if re.match(r"\[\w+\]$|(?:Default)?LimitNOFILE\s*=[\s\w:]*$", line)
    )
    return "".join("{}\n".format(line) for line in kept)


def _redact_cmdline(text: str) -> str:
    """The command line of nginx, in which only path options keep their values."""
    title, separator, rest = text.partition(": master process ")
    if not separator:
        return "\0".join(_redact_words(text.split("\0")))
    words = rest.rstrip("\0").split(" ")
    return "{}{}{}\0".format(title, separator, " ".join(_redact_words(words)))


def _redact_words(words: List[str]) -> List[str]:
    keep_next = False
    result = words[:1]
    for word in words[1:]:
        if word[:2] in _KEPT_OPTIONS or keep_next or word in {"", "-g", "-q"}:
            result.append(word)
        elif result[-1] != "redacted":
            result.append("redacted")
        keep_next = word in _KEPT_OPTIONS
    return result


def _map(function: Callable[[str], str], value: Any) -> Any:
    """The value with a function applied to every text, keys of mappings included."""
    if isinstance(value, str):
        return function(value)
    if isinstance(value, list):
        return [_map(function, part) for part in value]
    if isinstance(value, dict):
        if isinstance(value.get("base64"), str):
            data = base64.b64decode(value["base64"])
            return from_bytes(
                function(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")
            )
        return {function(key): _map(function, part) for key, part in value.items()}
    return value


def from_bytes(data: bytes) -> Any:
    """The contents of a file as an answer: text, or base64 if they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def escaped(text: str) -> str:
    """The text for JSON; bytes of file names that are not UTF-8 are escaped."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
