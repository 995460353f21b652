"""Records of a change's journal, the state that they describe, and errors of a change; no I/O."""

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
    """Attributes of a file that its replacement must have too."""

    mode: int
    user: int
    group: int
    accessed_ns: int
    modified_ns: int
    extended: dict[str, bytes] = {}
    """Extended attributes by name: access lists, security labels, capabilities, user attributes."""
    inode_flags: int = 0
    """The flags of chattr(1) that can be set on a new file."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a change, with links resolved."""

    path: str
    kind: EditKind
    sha256_before: str | None
    sha256_after: str
    beside: str
    """A hidden name in the same directory: first of the new file and, after the exchange, of the
    old file."""
    attributes: Attributes | None = None
    """The attributes of the old file; None for a file that is created."""


class LeftFile(msgspec.Struct, frozen=True, kw_only=True):
    """A small file that a failed reload may remove, such as the pid file."""

    path: str
    content: bytes
    mode: int
    user: int
    group: int


class TargetNginx(msgspec.Struct, frozen=True, kw_only=True):
    """The nginx before the change, recorded so that a rollback parses no configuration."""

    conf_path: str
    master: Process | None = None
    workers: list[Process] = []
    reload_command: list[str] = []
    """The command to run instead of the signal."""
    error_logs: list[str] = []
    pid_file: LeftFile | None = None
    sockets: list[str] = []
    """The Unix sockets that nginx listens on."""
    addresses: list[Address] = []
    silent: list[AcceptingSocket] = []
    """Listeners that did not answer before the change."""


class Begin(Record, frozen=True, kw_only=True):
    """The start: no file of nginx is changed yet, and all data for a rollback is on the disk."""

    id: str
    at: str
    """Time in UTC, for display only."""
    boot_id: str
    owner: Process
    target: TargetNginx
    entries: list[Entry]


class Swapping(Record, frozen=True, kw_only=True):
    """The start of the exchange: from now on, each file may be the old or the new one."""


class Tested(Record, frozen=True, kw_only=True):
    """The acceptance of the new files by the target's own test."""

    error_logs: list[str] = []
    """The error logs of the new configuration."""
    new_sockets: list[str] = []
    """Unix sockets that only the new configuration has."""
    new_pid_path: str | None = None
    """The new path of the pid file, if it changes."""


class Reloading(Record, frozen=True, kw_only=True):
    """The moment just before nginx is made to reload."""


class Answered(Record, frozen=True, kw_only=True):
    """The moment when the new workers were seen to answer."""

    workers: list[int]
    seen: int
    listeners: int


class Awaiting(Record, frozen=True, kw_only=True):
    """The wait for a confirmation, without which the change is undone."""

    guardian: Process
    until: str
    """Time in UTC, for display only."""
    until_boot_seconds: float
    """The deadline by CLOCK_BOOTTIME, a clock that cannot be set."""


class Kept(Record, frozen=True, kw_only=True):
    """The end: the new files stay."""

    confirmed: bool = False


class Undoing(Record, frozen=True, kw_only=True):
    """The start of the rollback, which any process may finish."""

    reason: str
    owner: Process


class Undone(Record, frozen=True, kw_only=True):
    """The end of a rollback: every old file is back, and nginx, if it runs, serves them."""

    reason: str
    server: str
    """The effect on nginx: ``reloaded``, ``not told`` (to reload) or ``not running``."""


class Stuck(Record, frozen=True, kw_only=True):
    """A change that could neither be kept nor taken back."""

    reason: str
    paths: list[str] = []


class Left(Record, frozen=True, kw_only=True):
    """The end of a stuck change, by the operator: the files stay as they are."""


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
    """The line of a record, as bytes.

    A reason quotes messages of nginx and the system, which may not be UTF-8. Such bytes are
    escaped, since nothing may prevent a rollback. Paths are not escaped: a rollback must find them.
    Errors: RefusedError for a path that is not UTF-8.
    """
    if isinstance(record, Undoing | Undone | Stuck):
        record = msgspec.structs.replace(record, reason=as_utf8(record.reason))
    try:
        text = _ENCODER.encode(record)
    except UnicodeEncodeError as error:
        raise RefusedError(
            f"{as_utf8(error.object)}: not UTF-8, so the journal of a change cannot name it",
            hint="rename it, or change the files by hand",
        ) from None
    return b"%08x %s\n" % (zlib.crc32(text), text)


class Story(NamedTuple):
    """The records of one journal and the phase that they result in."""

    begin: Begin | None
    phase: JournalPhase
    records: list[AnyRecord]
    whole_bytes: int
    """Length of the complete records in bytes; what follows is an incomplete record."""

    @property
    def is_finished(self) -> bool:
        """True if the change has ended."""
        return self.phase in FINISHED

    @property
    def may_be_loaded(self) -> bool:
        """True if nginx may have read the new files because of our reload."""
        return any(isinstance(record, Reloading) for record in self.records)

    @property
    def tested(self) -> Tested:
        """The record of the target's test of the new files; empty if there was no test."""
        return next((record for record in self.records if isinstance(record, Tested)), Tested())

    @property
    def answered(self) -> set[int]:
        """The process ids of the new workers that were seen to answer."""
        answers = (record for record in self.records if isinstance(record, Answered))
        return {pid for answer in answers for pid in answer.workers}

    @property
    def owner(self) -> Process | None:
        """The last process to work on the change; it may have died."""
        for record in reversed(self.records):
            if isinstance(record, Awaiting):
                return record.guardian
            if isinstance(record, Begin | Undoing):
                return record.owner
        return None

    @property
    def deadline(self) -> Awaiting | None:
        """The last record of a wait for confirmation; None if the change never waited."""
        found = [record for record in self.records if isinstance(record, Awaiting)]
        return found[-1] if found else None

    @property
    def reason(self) -> str:
        """The reason for a rollback, or for a change that is stuck; empty otherwise."""
        for record in reversed(self.records):
            if isinstance(record, Undoing | Undone | Stuck) and record.reason:
                return record.reason
        return ""


def read_story(data: bytes | None) -> Story:
    """Read a journal up to its first incomplete line; ``data`` is None if there is no journal.

    A power cut can leave an incomplete last line; the step that it announces had not begun. Any
    other incomplete line means damage: the first line is complete before the journal gets its name,
    and an incomplete line is cut off before more is written.
    """
    if data is None:
        return Story(None, "empty", [], 0)
    lines = list(_records(data))
    size = sum(len(line) for line, _ in lines)
    records = [record for _, record in lines]
    begin = records[0] if records and isinstance(records[0], Begin) else None
    if begin is None:
        return Story(None, "damaged", [], 0)
    if any(True for line in data[size:].splitlines(keepends=True) for _ in _records(line)):
        return Story(begin, "damaged", records, size)
    return Story(begin, _PHASES[type(records[-1])], records, size)


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
    """A refusal of a change before anything is changed."""

    status = ExitStatus.USAGE


class RejectedError(RefusedError):
    """A rejection of the old or the new files by the target's ``nginx -t``."""

    status = ExitStatus.CONFIGURATION


class StuckError(NginxTuneError):
    """A change that could neither be kept nor taken back."""

    status = ExitStatus.STUCK

    def __init__(self, message: str, *, paths: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.paths = list(paths)


class ForeignError(StuckError):
    """A change whose files another program has written to since."""


def disk_words(error: OSError) -> str:
    """The text of an error, as ``FILE: MESSAGE`` if the file is known."""
    words = error.strerror or str(error)
    return f"{error.filename}: {words}" if error.filename else words


def reason_of(error: BaseException) -> str:
    """The reason for a rollback, as text for the journal."""
    if isinstance(error, NginxTuneError):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "interrupted" if isinstance(error, KeyboardInterrupt) else f"{error!r}"
