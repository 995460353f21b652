"""Files of a plan: hunks of changed files, and drop-ins for the host; pure.

Hunks are exact: they turn the old file into the new one and back, so a plan alone shows everything
that it writes.

Drop-ins for the host are never part of a change of nginx's files, since a reload cannot undo them;
each has its own undo commands. Source: sysctl.d(5), systemd.unit(5) (drop-in directories),
systemd.exec(5) (LimitNOFILE=).
"""

import hashlib
import re
import shlex
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.conf.directive import Block
from nginx_tune.conf.tree import ParsedFile
from nginx_tune.documents.decisions import Decision, HostSetting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.plan import HostPart, Hunk, PlannedFile
from nginx_tune.errors import UsageError

ByteSpan = tuple[int, int, bytes]
"""Start and end of a replaced part of a file, in bytes, and its new text."""
_Exact = tuple[int, bytes, bytes]
"""Start of a change, in bytes, and its text before and after the change."""


class _Piece(NamedTuple):
    """A part of a file; it is unchanged if ``text`` is None."""

    start: int
    """Offset in the old file, as is ``end``."""
    end: int
    text: bytes | None = None
    reasons: tuple[Hunk, ...] = ()

    @property
    def size(self) -> int:
        """Size in the new file, in bytes."""
        return self.end - self.start if self.text is None else len(self.text)


class TracedFile:
    """A file that is changed step by step, with the origin of each byte in the old file."""

    def __init__(self, old: bytes, hunks: Sequence[Hunk] = ()) -> None:
        self._old = old
        self._pieces = [_Piece(0, len(old))]
        for (start, before, after), own in reversed(_by_span(hunks)):
            self._put((start, start + len(before), after), own)

    @property
    def content(self) -> bytes:
        """The current content."""
        return b"".join(
            self._old[piece.start : piece.end] if piece.text is None else piece.text
            for piece in self._pieces
        )

    def change(self, spans: Mapping[ByteSpan, Sequence[Hunk]]) -> None:
        """Replace spans of the current file, which must not touch, each with its reasons.

        A reason is a Hunk without place and texts; ``hunks`` fills them in.
        """
        for span in reversed(sorted(spans, key=lambda one: one[:2])):  # noqa: C413  # equal ones too
            self._put(span, spans[span])

    def _put(self, span: ByteSpan, reasons: Sequence[Hunk]) -> None:
        start, end, text = span
        self._cut(start)
        self._cut(end)
        before, covered, after, at = list[_Piece](), list[_Piece](), list[_Piece](), 0
        for piece in self._pieces:
            behind = at + piece.size
            if behind <= start:
                before.append(piece)
            elif at >= end:
                after.append(piece)
            else:
                if not covered and piece.text is not None:
                    text = piece.text[: start - at] + text
                if piece.text is not None:
                    text += piece.text[max(end - at, 0) :]
                covered.append(piece)
            at = behind
        here = before[-1].end if before else 0
        whole = _Piece(
            covered[0].start if covered else here,
            covered[-1].end if covered else here,
            text,
            tuple(_once([*(hunk for piece in covered for hunk in piece.reasons), *reasons])),
        )
        self._pieces = [*before, whole, *after]

    def _cut(self, offset: int) -> None:
        """Split an unchanged piece at the offset."""
        at = 0
        for number, piece in enumerate(self._pieces):
            if piece.text is None and at < offset < at + piece.size:
                middle = piece.start + offset - at
                self._pieces[number : number + 1] = [
                    _Piece(piece.start, middle),
                    _Piece(middle, piece.end),
                ]
                return
            at += piece.size

    def origin(self, line: int) -> int:
        """The line of the old file at which a current line originates.

        For a new line, that is the line of the line before it. Both count from 1.
        """
        at, left = 0, _line_start(self.content, line)
        for piece in self._pieces:
            if left < at + piece.size:
                inside = 0 if piece.text is not None else left - at
                return _line_of(self._old, piece.start + inside)
            at += piece.size
        return _line_of(self._old, len(self._old))

    def hunks(self, parsed: ParsedFile) -> list[Hunk]:
        """The changed spans in file order, each extended to whole directives of ``parsed``."""
        changed = [piece for piece in self._pieces if piece.text is not None]
        whole = _whole_directives(self._old, changed, parsed)
        return [
            replace(
                reason,
                line=_line_of(self._old, piece.start),
                start_byte=piece.start,
                before=_text(self._old[piece.start : piece.end]),
                after=_text(piece.text or b""),
            )
            for piece in _apart(whole)
            if piece.text != self._old[piece.start : piece.end]
            for reason in piece.reasons
        ]


def planned_file(parsed: ParsedFile, traced: TracedFile) -> PlannedFile:
    """The planned change of one file, with its hunks."""
    content, old = traced.content, parsed.source.data
    return PlannedFile(
        path=parsed.source.file,
        sha256_before=hashlib.sha256(old).hexdigest(),
        sha256_after=hashlib.sha256(content).hexdigest(),
        content=content,
        hunks=traced.hunks(parsed),
    )


def _whole_directives(
    old: bytes, changed: Sequence[_Piece], parsed: ParsedFile
) -> Iterator[_Piece]:
    """The pieces; those inside a directive become one piece that covers the whole directive."""
    spans = sorted(
        (parsed.source.byte_offset(start), parsed.source.byte_offset(end))
        for start, end in _statements(parsed.block)
    )

    def around(piece: _Piece) -> tuple[int, int]:
        number = bisect_right(spans, (piece.start, len(old) + 1)) - 1
        start, end = spans[number] if number >= 0 else (0, 0)
        is_inside = start <= piece.start and piece.end <= end
        is_edge = piece.start == piece.end and piece.start in (start, end)
        return (start, end) if is_inside and not is_edge else (piece.start, piece.end)

    groups = [(span, list(found)) for span, found in groupby(changed, around)]
    behind = 0
    for number, ((start, end), pieces) in enumerate(groups):
        following_start = groups[number + 1][1][0].start if groups[number + 1 :] else end
        is_whole = len(pieces) == 1 and (pieces[0].start, pieces[0].end) == (start, end)
        is_met = start < behind or following_start < end  # overlaps a piece that extends beyond it
        behind = max(behind, pieces[-1].end)
        if start == end or is_whole or is_met:
            yield from pieces
            continue
        at, text = start, b""
        for part in pieces:
            text += old[at : part.start] + (part.text or b"")
            at = part.end
        behind = end
        reasons = _once([hunk for piece in pieces for hunk in piece.reasons])
        yield _Piece(start, end, text + old[at:end], tuple(reasons))


def _statements(block: Block) -> Iterator[tuple[int, int]]:
    for line in block.directives:
        yield line.start, line.end
        if line.block is not None:
            yield from _statements(line.block)


def _apart(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """The pieces; identical pieces are merged, since their hunks would look alike."""
    for (start, end, text), found in groupby(
        pieces, lambda piece: (piece.start, piece.end, piece.text)
    ):
        alike = list(found)
        reasons = _once([hunk for hunk_alike in alike for hunk in hunk_alike.reasons])
        yield _Piece(start, end, (text or b"") * len(alike), tuple(reasons))


def _once(reasons: Iterable[Hunk]) -> list[Hunk]:
    """The hunks without duplicate reasons."""
    found: dict[tuple[str, str], Hunk] = {}
    for hunk in reasons:
        found.setdefault((hunk.decision, hunk.reason), hunk)
    return list(found.values())


class HunkError(ValueError):
    """A hunk that does not fit its file; ``line`` is the line that the hunk names."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


def old_content(file: PlannedFile) -> bytes:
    """The file before the change, rebuilt from its new content and its hunks alone.

    Compare the result with ``sha256_before``. Errors: HunkError.
    """
    content, parts = file.content, list[bytes]()
    at = behind = 0
    line, counted = 1, 0
    for (start, before, after), own in _by_span(file.hunks):
        claimed = own[0].line
        if start < 0:
            raise HunkError(claimed, "a hunk has no start")
        if start < behind:
            raise HunkError(claimed, "hunks overlap or are out of order")
        if before == after:
            raise HunkError(claimed, "a hunk changes nothing")
        same = content[at : at + start - behind]
        if len(same) < start - behind:
            raise HunkError(claimed, "a hunk starts after the end of the file")
        at += len(same)
        if content[at : at + len(after)] != after:
            raise HunkError(claimed, "the new file differs from its hunk")
        parts += same, before
        line, counted = line + counted + same.count(b"\n"), before.count(b"\n")
        if any(hunk.line != line for hunk in own):
            raise HunkError(claimed, f"a hunk names this line, but changes line {line}")
        at += len(after)
        behind = start + len(before)
    return b"".join([*parts, content[at:]])


def first_difference(one: bytes, other: bytes) -> int:
    """The first line in which two files differ, counted from 1."""
    pairs = zip(_lines(one), _lines(other), strict=False)
    alike = takewhile(lambda pair: pair[0] == pair[1], pairs)
    return sum(1 for _ in alike) + 1


def _lines(data: bytes) -> list[bytes]:
    *whole, last = data.split(b"\n")
    return [*(line + b"\n" for line in whole), last]


def _by_span(hunks: Sequence[Hunk]) -> list[tuple[_Exact, list[Hunk]]]:
    """The changes in order, each with its hunks."""
    return [
        (span, list(own))
        for span, own in groupby(
            hunks, lambda hunk: (hunk.start_byte, _bytes(hunk.before), _bytes(hunk.after))
        )
    ]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _line_of(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1


def _line_start(data: bytes, line: int) -> int:
    at = 0
    for _ in range(line - 1):
        at = data.find(b"\n", at) + 1
    return at


SYSCTL_PATH = "/etc/sysctl.d/60-nginx-tune.conf"
UNIT_PATH = "/etc/systemd/system/nginx.service.d/60-nginx-tune.conf"
UDEV_PATH = "/etc/udev/rules.d/60-nginx-tune.rules"
_BOUNDS = {
    ("sysctl", "net.core.somaxconn"): (1, (1 << 31) - 1),
    ("sysctl", "net.core.rmem_default"): (1, (1 << 31) - 1),
    ("sysctl", "net.core.rmem_max"): (1, (1 << 31) - 1),
    ("sysctl", "net.core.wmem_max"): (1, (1 << 31) - 1),
    ("sysctl", "net.ipv4.ip_local_port_range"): (1, 65535),
    ("sysctl", "net.ipv4.tcp_migrate_req"): (0, 1),
    ("sysctl", "fs.nr_open"): (1, (1 << 31) - 1),
    ("unit", "LimitNOFILE"): (1, (1 << 31) - 1),
    ("unit", "TasksMax"): (1, 1 << 22),
}
"""Allowed range of each host setting; ``_READ_AHEAD`` has the range for devices. Source:
Documentation/admin-guide/sysctl of Linux."""
_READ_AHEAD = (0, 1 << 20)
_DEVICE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_NUMBERS = re.compile(r"[0-9]{1,20}(?:[ \t]+[0-9]{1,20})?")


def host_parts(decisions: Iterable[Decision], facts: Facts) -> list[HostPart]:
    """The drop-ins for the host.

    Kernel settings come first, since the unit's limit may depend on one.

    Empty if nginx runs in a container, where the host's files do not apply, and on systems other
    than Linux.
    """
    running = facts.nginx.running
    if running and (running.other_mount_namespace or running.other_network_namespace):
        return []
    if facts.kernel.system not in {None, "Linux"}:
        return []
    asked = _highest(setting for decision in decisions for setting in decision.host_settings)
    return _parts(asked)


def host_lines(part: HostPart) -> list[str]:
    """A drop-in as text lines, with its command; devices with the same change share a line."""
    if part.kind != "udev":
        return [
            f"{setting.name} {setting.before or 'not known'} -> {setting.value} "
            f"({setting.decision}: {setting.reason})"
            for setting in part.settings
        ]
    alike: dict[tuple[str, str], list[str]] = {}
    for setting in part.settings:
        alike.setdefault((setting.before, setting.value), []).append(setting.name)
    return [
        f"read-ahead of {', '.join(names)}: {before or '?'} -> {value} KiB; until a reboot: "
        f"blockdev --setra {2 * int(value)} {' '.join(f'/dev/{name}' for name in names)}"
        for (before, value), names in alike.items()
    ]


def checked_host_parts(parts: Iterable[HostPart]) -> list[HostPart]:
    """The drop-ins of an untrusted plan, rebuilt from checked names and numbers.

    The commands that the user is told to run thus come from this program, not from the plan.
    Errors: UsageError for a setting that no decision makes.
    """
    settings = [setting for part in parts for setting in part.settings]
    for number, setting in enumerate(settings, start=1):
        low, high = _BOUNDS.get((setting.kind, setting.name), (1, 0))
        if setting.kind == "udev" and _DEVICE.fullmatch(setting.name):
            low, high = _READ_AHEAD
        is_number = _NUMBERS.fullmatch(setting.value) and _NUMBERS.fullmatch(setting.before or "0")
        if not (is_number and all(low <= int(word) <= high for word in setting.value.split())):
            raise UsageError(
                f"the plan's host setting {number} is not one that nginx-tune makes",
                hint="make the plan again: nginx-tune plan",
            )
    return _parts(settings)


def _parts(settings: Sequence[HostSetting]) -> list[HostPart]:
    kernel, unit, devices = (
        [setting for setting in settings if setting.kind == kind]
        for kind in ("sysctl", "unit", "udev")
    )
    parts = [*_kernel_part(kernel), *_unit_part(unit), *_udev_part(devices)]
    return [replace(part, content=_head(part) + part.content) for part in parts]


def _head(part: HostPart) -> str:
    lines = [
        "Made by nginx-tune.",
        f"Install as {part.path}, then run: {'; '.join(part.commands)}",
        f"Undo: {'; '.join(part.undo)}",
    ]
    return "".join(f"# {line}\n" for line in lines)


def _highest(asked: Iterable[HostSetting]) -> list[HostSetting]:
    """For each name, the setting with the highest value."""
    kept: dict[tuple[str, str], HostSetting] = {}
    for setting in asked:
        key = (setting.kind, setting.name)
        if key not in kept or int(setting.value) > int(kept[key].value):
            kept[key] = setting
    return sorted(kept.values(), key=lambda setting: setting.name)


def _kernel_part(settings: Sequence[HostSetting]) -> Iterable[HostPart]:
    if not settings:
        return
    before = [
        "sudo sysctl -w " + shlex.quote(f"{setting.name}={' '.join(setting.before.split())}")
        if setting.before
        else f"restart the host (the current {setting.name} is not known)"
        for setting in settings
    ]
    yield HostPart(
        kind="sysctl",
        path=SYSCTL_PATH,
        content="".join(
            _commented(setting) + f"{setting.name} = {setting.value}\n" for setting in settings
        ),
        settings=list(settings),
        commands=[f"sudo sysctl -p {SYSCTL_PATH}"],
        undo=[f"sudo rm {SYSCTL_PATH}", *before],
    )


def _unit_part(settings: Sequence[HostSetting]) -> Iterable[HostPart]:
    if not settings:
        return
    restart = ["sudo systemctl daemon-reload", "sudo systemctl restart nginx"]
    yield HostPart(
        kind="unit",
        path=UNIT_PATH,
        content="[Service]\n"
        + "".join(
            _commented(setting) + f"{setting.name}={setting.value}\n" for setting in settings
        ),
        settings=list(settings),
        commands=restart,
        undo=[f"sudo rm {UNIT_PATH}", *restart],
    )


def _udev_part(settings: Sequence[HostSetting]) -> Iterable[HostPart]:
    """The read-ahead of block devices. Source: udev(7); Documentation/ABI/stable/sysfs-block."""
    if not settings:
        return
    reload = "sudo udevadm control --reload"
    devices = " ".join(f"--sysname-match={setting.name}" for setting in settings)
    earlier: dict[str, list[str]] = {}
    for setting in settings:
        earlier.setdefault(setting.before, []).append(f"/dev/{setting.name}")
    before = [
        f"sudo blockdev --setra {2 * int(kibibytes)} {' '.join(names)}"
        if kibibytes
        else f"restart the host (the current read-ahead of {', '.join(names)} is not known)"
        for kibibytes, names in earlier.items()
    ]
    yield HostPart(
        kind="udev",
        path=UDEV_PATH,
        content="# The kernel may rename disks at boot: if so, match ENV{ID_SERIAL} instead.\n"
        + "".join(
            _commented(setting)
            + f'ACTION=="add|change", SUBSYSTEM=="block", KERNEL=="{setting.name}", '
            f'ATTR{{queue/read_ahead_kb}}="{setting.value}"\n'
            for setting in settings
        ),
        settings=list(settings),
        commands=[reload, f"sudo udevadm trigger --action=change {devices}"],
        undo=[f"sudo rm {UDEV_PATH}", reload, *before],
    )


def _commented(one: HostSetting) -> str:
    now = f" (was {one.before})" if one.before else ""
    return f"# {one.decision}: {one.reason}{now}\n"
