"""Records of a change's journal, the story that they amount to, and endings of a change; pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from nginx_tune.conf.directive import as_utf8
from nginx_tune.errors import ExitStatus, NginxTuneError
from nginx_tune.nginx.reload.address import AcceptingSocket, Address
from nginx_tune.nginx.reload.workers import Process

EditKind = Literal["edit", "create"]


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag=str.lower):
    """One line of a journal."""


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """All that a file is besides its bytes."""

    mode: int
    user: int
    group: int
    accessed_ns: int
    modified_ns: int
    extended: dict[str, bytes] = {}
    """Extended attributes by name: access lists, security labels, capabilities, the user's."""
    inode_flags: int = 0
    """Those of chattr(1) that can be set on a new file."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a change, links resolved."""

    path: str
    kind: EditKind
    sha256_before: str | None
    sha256_after: str
    beside: str
    """The hidden name in the same directory: the new file comes from it, the old one goes to it."""
    attributes: Attributes | None = None
    """The attributes of the file before; null for one that is created."""


class LeftFile(msgspec.Struct, frozen=True, kw_only=True):
    """A small file that a failed reload may take away, such as the pid file."""

    path: str
    content: bytes
    mode: int
    user: int
    group: int


class TargetNginx(msgspec.Struct, frozen=True, kw_only=True):
    """The nginx that the change is for, as it was before: a rollback parses no configuration."""

    conf_path: str
    master: Process | None = None
    workers: list[Process] = []
    reload_command: list[str] = []
    """Instead of the signal."""
    error_logs: list[str] = []
    pid_file: LeftFile | None = None
    sockets: list[str] = []
    """Socket files that it listened at."""
    addresses: list[Address] = []
    silent: list[AcceptingSocket] = []
    """Listeners that did not answer."""


class Begin(Record, frozen=True, kw_only=True):
    """Nothing has been changed yet; what is needed to take it back is on the disk."""

    id: str
    at: str
    """UTC, for people: nothing is decided by it."""
    boot_id: str
    owner: Process
    target: TargetNginx
    entries: list[Entry]


class Swapping(Record, frozen=True, kw_only=True):
    """The files are being exchanged: each is the old one or the new one."""


class Tested(Record, frozen=True, kw_only=True):
    """The target's own test accepts the new files."""

    error_logs: list[str] = []
    """Those that the new configuration names."""
    new_sockets: list[str] = []
    """Socket files that only the new configuration names."""
    new_pid_path: str | None = None
    """The new path, where it is another."""


class Reloading(Record, frozen=True, kw_only=True):
    """nginx is about to be told."""


class Answered(Record, frozen=True, kw_only=True):
    """A new generation was seen to answer."""

    workers: list[int]
    seen: int
    listeners: int


class Awaiting(Record, frozen=True, kw_only=True):
    """It is undone unless it is confirmed."""

    guardian: Process
    until: str
    """UTC, for people."""
    until_boot_seconds: float
    """By the clock that no one sets (CLOCK_BOOTTIME)."""


class Kept(Record, frozen=True, kw_only=True):
    """The new files stay."""

    confirmed: bool = False


class Undoing(Record, frozen=True, kw_only=True):
    """From here on it is taken back, whoever does it."""

    reason: str
    owner: Process


class Undone(Record, frozen=True, kw_only=True):
    """Every file is the old one, and the server, if it runs, was seen to serve it."""

    reason: str
    server: str
    """The reaction of the server: ``reloaded``, ``not told`` or ``not running``."""


class Stuck(Record, frozen=True, kw_only=True):
    """It could neither be kept nor taken back."""

    reason: str
    paths: list[str] = []


class Left(Record, frozen=True, kw_only=True):
    """The operator has the files as they are; this change is over."""


AnyRecord = (
    Begin
    | Swapping
    | Tested
    | Reloading
    | Answered
    | Awaiting
    | Kept
    | Undoing
    | Undone
    | Stuck
    | Left
)
_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)

JournalPhase = Literal[
    "empty", "begun", "swapping", "tested", "reloading", "answered", "awaiting", "kept",
    "undoing", "undone", "stuck", "left", "damaged",
]  # fmt: skip
_PHASES: dict[type[Record], JournalPhase] = {
    Begin: "begun", Swapping: "swapping", Tested: "tested", Reloading: "reloading",
    Answered: "answered", Awaiting: "awaiting", Kept: "kept", Undoing: "undoing",
    Undone: "undone", Stuck: "stuck", Left: "left",
}  # fmt: skip
FINISHED: frozenset[JournalPhase] = frozenset({"kept", "undone", "left", "empty"})


def encode_record(record: AnyRecord) -> bytes:
    """The line of a record.

    A reason quotes what nginx and the system say, names and bytes that are no UTF-8 among it:
    those stand as escapes, for nothing may keep a change from being taken back. A path must be
    found again by its name. Errors: RefusedError for one that is no UTF-8, as JSON is.
    """
    try:
        text = _ENCODER.encode(record)
    except UnicodeEncodeError:
        text = _encode_escaped(record)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _encode_escaped(record: AnyRecord) -> bytes:
    if isinstance(record, Undoing | Undone | Stuck):
        record = msgspec.structs.replace(record, reason=as_utf8(record.reason))
    try:
        return _ENCODER.encode(record)
    except UnicodeEncodeError as error:
        raise RefusedError(
            f"{as_utf8(error.object)}: no UTF-8, so the journal of a change cannot name it",
            hint="rename it, or change the files by hand",
        ) from None


class Story(NamedTuple):
    """The story that the records of one journal amount to."""

    begin: Begin | None
    phase: JournalPhase
    records: list[AnyRecord]
    whole_bytes: int
    """Length of what was read; what follows was not written whole."""

    @property
    def is_finished(self) -> bool:
        """True if nothing is left to be done."""
        return self.phase in FINISHED

    @property
    def was_told(self) -> bool:
        """True if nginx may have read the new files by our doing."""
        return any(isinstance(record, Reloading) for record in self.records)

    @property
    def tested(self) -> Tested:
        """The target's words on the new files."""
        return next((one for one in self.records if isinstance(one, Tested)), Tested())

    @property
    def answered(self) -> set[int]:
        """The new workers that were seen, by their process numbers."""
        return {pid for one in self.records if isinstance(one, Answered) for pid in one.workers}

    @property
    def owner(self) -> Process | None:
        """The process that is at work on it, if it lives."""
        for record in reversed(self.records):
            if isinstance(record, Awaiting):
                return record.guardian
            if isinstance(record, Begin | Undoing):
                return record.owner
        return None

    @property
    def deadline(self) -> Awaiting | None:
        """Until when it waits to be confirmed."""
        found = [record for record in self.records if isinstance(record, Awaiting)]
        return found[-1] if found else None

    @property
    def reason(self) -> str:
        """The reason why it was taken back or is stuck."""
        for record in reversed(self.records):
            if isinstance(record, Undoing | Undone | Stuck) and record.reason:
                return record.reason
        return ""


def read_story(data: bytes | None) -> Story:
    """The records up to the first line that is not whole; null where there is no journal.

    A last line that is not whole was being written as the power went, and announced nothing yet.
    Elsewhere it is damage: the first line is whole before the journal has its name, and what is
    not whole is cut off before more is written.
    """
    if data is None:
        return Story(None, "empty", [], 0)
    records = list(_records(data))
    size = sum(len(line) for line, _ in records)
    told = [record for _, record in records]
    begin = told[0] if told and isinstance(told[0], Begin) else None
    if begin is None:
        return Story(None, "damaged", [], 0)
    if any(True for line in data[size:].splitlines(keepends=True) for _ in _records(line)):
        return Story(begin, "damaged", told, size)
    return Story(begin, _PHASES[type(told[-1])], told, size)


def _records(data: bytes) -> Iterable[tuple[bytes, AnyRecord]]:
    for line in data.splitlines(keepends=True):
        checksum, _, text = line.rstrip(b"\n").partition(b" ")
        if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
            return
        try:
            yield line, _DECODER.decode(text)
        except msgspec.MsgspecError:
            return


class RefusedError(NginxTuneError):
    """Not begun: nothing was changed."""

    status = ExitStatus.USAGE


class RejectedError(RefusedError):
    """The target's ``nginx -t`` rejects what is there, or what would be there."""

    status = ExitStatus.CONFIGURATION


class StuckError(NginxTuneError):
    """It could neither be kept nor taken back."""

    status = ExitStatus.STUCK

    def __init__(self, message: str, *, paths: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.paths = list(paths)


class ForeignError(StuckError):
    """Somebody else has written to files of the change since."""


def disk_words(error: OSError) -> str:
    """The fault of a file, after its name where that is known."""
    words = error.strerror or str(error)
    return f"{error.filename}: {words}" if error.filename else words


def reason_of(error: BaseException) -> str:
    """The reason to take a change back, in words for its journal."""
    if isinstance(error, NginxTuneError):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "interrupted" if isinstance(error, KeyboardInterrupt) else f"{error!r}"
