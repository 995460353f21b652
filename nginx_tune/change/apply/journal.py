"""The state directory: a lock, and for every change the data for its rollback.

``lock`` is held while files are changed. Every change has a directory with its journal and the
bytes of every file that it replaces, all on the disk before the first file is changed.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shlex
import stat
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

from nginx_tune.change.apply import calls
from nginx_tune.change.apply.model_journal import (
    AnyRecord,
    Begin,
    Entry,
    RefusedError,
    Story,
    Stuck,
    StuckError,
    Undoing,
    Undone,
    encode_record,
    read_story,
)
from nginx_tune.errors import UsageError
from nginx_tune.host.paths import why_not_own
from nginx_tune.nginx.reload.workers import Process, process_of

STATE_DIRECTORY = Path("/var/lib/nginx-tune")
_JOURNAL = "journal"
_LOCK = "lock"
_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}")
_MOST_BYTES = 64 << 20


def boot_id() -> str:
    """The id of the current boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def boot_seconds() -> float:
    """Seconds since the machine started, including time suspended; this clock cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def this_process() -> Process:
    """The current process."""
    return process_of(os.getpid()) or Process(pid=os.getpid(), start_ticks=0)


class Journal:
    """The journal of one change."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.id = directory.name
        self._held: int | None = None
        self._known: Story | None = None

    def command(self, verb: str, *options: str) -> str:
        """A command line for this change, with its state directory if that is not the default."""
        return self._typed(verb, self.id, *options)

    @property
    def recovery(self) -> str:
        """The command that takes every unfinished change back."""
        return self._typed("rollback", "--recover")

    def _typed(self, *words: str) -> str:
        path = self.directory.parent.parent
        place = [] if path == STATE_DIRECTORY else ["--state-dir", str(path)]
        return shlex.join(["nginx-tune", *words, *place])

    @property
    def ways_out(self) -> str:
        """The commands for a change that is stuck."""
        if not (self.directory / _JOURNAL).exists():
            return f"by hand: its journal {self.directory} is gone"
        leave = self.command("rollback", "--leave")
        return f"{self.command('rollback')}, or to end it with the files as they are: {leave}"

    def read(self) -> Story:
        """The records of the change; empty if nothing was written.

        A journal that is held open keeps its last known records even if it is removed or emptied.
        """
        try:
            descriptor = self._open(_JOURNAL)
        except (FileNotFoundError, NotADirectoryError):
            descriptor = -1 if self._held is None else os.dup(self._held)
        if descriptor < 0:
            return self._known or read_story(None)
        try:
            story = _story_of(descriptor)
        finally:
            os.close(descriptor)
        if story.phase == "damaged" and self._known is not None:
            return self._known
        if self._held is not None:
            self._known = story
        return story

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the journal's file open, to read and write it even if its name is gone.

        Otherwise, if the state directory is removed, renamed or unmounted during a change, the
        change would look as if it had never begun, and its new files would stay in effect.
        """
        self._held = os.open(self.directory / _JOURNAL, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self.read()
            yield
        finally:
            self.read()  # keep the last records for the report
            os.close(self._held)
            self._held = None

    def _open(self, name: str) -> int:
        """Open a file of the change; refused if other users could have written it.

        Errors: FileNotFoundError, RefusedError.
        """
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        path = self.directory / name
        try:
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise RefusedError(f"{path}: not trusted: {error.strerror}") from None
        status = os.fstat(descriptor)
        why = "" if stat.S_ISREG(status.st_mode) else "not a regular file"
        why = why or fault(self.directory.lstat()) or fault(status)
        if why:
            os.close(descriptor)
            raise RefusedError(f"{path}: not trusted: {why}", hint="find out who put it there")
        return descriptor

    def append(self, record: AnyRecord) -> None:
        """Write one record to the disk, after the last complete record.

        If the journal's name is gone, the next process could not find the record. A step of the
        change then fails; a step of a rollback is still recorded, in the file that is held open.
        Errors: OSError; EIO if the journal was emptied.
        """
        descriptor = self._open_to_append(record)
        try:
            whole = _story_of(descriptor).whole_bytes
            if not whole and not isinstance(record, Begin):
                raise OSError(errno.EIO, "its journal was emptied")
            if os.fstat(descriptor).st_size != whole:
                calls.cut(descriptor, whole)
            os.lseek(descriptor, whole, os.SEEK_SET)
            calls.write(descriptor, encode_record(record))
            calls.flush(descriptor)
        finally:
            os.close(descriptor)

    def _open_to_append(self, record: AnyRecord) -> int:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self.directory / _JOURNAL, flags)
        except (FileNotFoundError, NotADirectoryError):
            if self._held is None or not isinstance(record, Undoing | Undone | Stuck):
                raise
            return os.dup(self._held)

    def begin(self, record: Begin, originals: Mapping[str, bytes]) -> None:
        """Store the original files, then the first record.

        So a journal with a first record has all originals.
        Errors: OSError, RefusedError; no file of nginx has been changed by then.
        """
        encode_record(record)  # refuse a path that is not UTF-8 before anything is stored
        with opened(self.directory) as directory:
            for number, entry in enumerate(record.entries):
                if entry.kind == "edit":
                    store(directory, f"original-{number}", originals[entry.path])
            store(directory, _JOURNAL + ".part", encode_record(record))
            calls.rename_over(directory, _JOURNAL + ".part", _JOURNAL)
            calls.flush(directory)
        with opened(self.directory.parent) as parent:
            calls.flush(parent)

    def check_whole(self) -> None:
        """Check that the journal is not damaged.

        Errors: StuckError.
        """
        if self.read().phase == "damaged":
            raise StuckError(
                f"{self.directory / _JOURNAL}: damaged: the outcome of change {self.id} and the "
                "files to put back are not known",
                hint=self.way_out_of_damage,
            )

    @property
    def way_out_of_damage(self) -> str:
        """Advice to the operator for a damaged journal."""
        return (
            f"restore it from a copy, or compare nginx's files with those that were replaced "
            f"({self.directory}/original-*), then remove {self.directory}"
        )

    def original(self, entry: Entry) -> bytes:
        """The bytes of a file before the change.

        Errors: StuckError if the stored bytes are damaged.
        """
        begin = self.read().begin
        entries = [] if begin is None else begin.entries
        path = self.directory / f"original-{entries.index(entry)}"
        with os.fdopen(self._open(path.name), "rb") as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() != entry.sha256_before:
            raise StuckError(f"{path}: the stored bytes of {entry.path} are damaged")
        return content


class State:
    """The state directory."""

    def __init__(self, path: Path = STATE_DIRECTORY) -> None:
        self.path = path
        self.journals = path / "changes"

    def prepare(self) -> None:
        """Create the state directory for its owner alone.

        Errors: RefusedError if it cannot be created, or if others could change it.
        """
        if self.path.exists():
            self.check()
        try:
            # An existing directory keeps its mode, since it may also serve other purposes.
            make_missing(self.path)
            make_missing(self.journals)
        except OSError as error:
            raise RefusedError(f"{self.path}: cannot keep a journal: {error.strerror}") from None
        self.check()

    def check(self) -> None:
        """Check that only its owner can change the contents of the state directory.

        Errors: RefusedError.
        """
        with contextlib.suppress(OSError):
            is_roots = self.path.stat().st_uid == 0 and os.geteuid() != 0
            if is_roots and not os.access(
                self.path, os.R_OK | os.W_OK | os.X_OK, effective_ids=True
            ):
                raise RefusedError(
                    f"{self.path}: the history of changes here belongs to root", hint="use sudo"
                )
        why = why_not_own(self.path)
        for place in (self.path, self.journals):
            if why:
                break
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                status = place.stat() if place == self.path else place.lstat()
                why = "" if stat.S_ISDIR(status.st_mode) else f"{place} is not a directory"
                why = why or fault(status)
        if why:
            raise RefusedError(
                f"{self.path}: not trusted: {why}", hint="name another with --state-dir"
            )

    @contextlib.contextmanager
    def locked(self, *, patience_seconds: float = 0.0) -> Iterator[None]:
        """Hold the lock, so that no other process makes a change.

        Errors: RefusedError if another process holds the lock, if other users could change the
                directory, or if it cannot be written; UsageError if no change was ever made.
        """
        self.check()
        descriptor = self._open_lock()
        try:
            self._wait(descriptor, time.monotonic() + patience_seconds)
            # The process id is only for messages: a full disk must not prevent a rollback.
            with contextlib.suppress(OSError):
                calls.cut(descriptor, 0)
                calls.write(descriptor, str(os.getpid()).encode())
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Hold the lock without writing anything.

        Errors: RefusedError if another process holds the lock, or if other users could change the
                directory.
        """
        self.check()
        try:
            descriptor = os.open(self.path / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            yield  # no change was ever made
            return
        except OSError as error:
            raise RefusedError(f"{self.path / _LOCK}: {error.strerror}") from None
        try:
            self._wait(descriptor, time.monotonic())
            yield
        finally:
            os.close(descriptor)

    def _open_lock(self) -> int:
        path, flags = self.path / _LOCK, os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
        except FileNotFoundError:
            raise UsageError(f"{self.path}: no change was made here") from None
        except OSError as error:
            if error.errno == errno.EROFS:  # a rollback may still put files back
                with contextlib.suppress(OSError):
                    return os.open(path, os.O_RDONLY | flags)
            raise RefusedError(f"{path}: {error.strerror}") from None

    def _wait(self, descriptor: int, until: float) -> None:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() < until:
                    time.sleep(0.05)
                    continue
                holder = os.pread(descriptor, 20, 0).decode(errors="replace")
                raise RefusedError(
                    f"{self.path / _LOCK}: another nginx-tune (process {holder or '?'}) is at work",
                    hint="wait for it, or see nginx-tune history",
                ) from None
            return

    def all(self) -> list[Journal]:
        """Every change, oldest first."""
        try:
            names = sorted(path.name for path in self.journals.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [Journal(self.journals / name) for name in names if _ID.fullmatch(name)]

    def find(self, name: str | None) -> Journal:
        """A change by its id or a prefix of its id; by default the last change begun.

        Errors: UsageError if none or several match, StuckError if the journal is damaged.
        """
        found = [journal for journal in self.all() if journal.read().phase != "empty"]
        if name is not None:
            found = [journal for journal in found if journal.id.startswith(name)]
            if len(found) > 1:
                raise UsageError(
                    f"{name}: {len(found)} changes have ids that begin with this",
                    hint="give more digits of the id",
                )
        if not found:
            raise UsageError(
                "no change is known" if name is None else f"{name}: no such change",
                hint=f"nginx-tune history --state-dir {self.path}",
            )
        found[-1].check_whole()
        return found[-1]

    def new(self) -> Journal:
        """Create a directory for a change; its name sorts after those of all earlier changes.

        The caller holds the lock. Errors: RefusedError if the directory cannot be created.
        """
        earlier = self.all()
        directory = self.journals / next_id(_now(), earlier[-1].id if earlier else "")
        try:
            calls.make_directory(directory, 0o700)
        except OSError as error:
            raise RefusedError(f"{directory}: cannot keep a journal: {error.strerror}") from None
        return Journal(directory)


def _story_of(descriptor: int) -> Story:
    return read_story(os.pread(descriptor, _MOST_BYTES, 0))


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")


def next_id(now: str, last: str) -> str:
    """An id that sorts after the last id, even in the same second or after the clock was set back.

    The order matters because a rollback by default takes back the last change.
    """
    time, _, number = last.partition("-")
    if now > time:
        return f"{now}-{secrets.randbelow(1 << 20):06x}"
    return f"{time}-{int(number, 16) + 1:06x}"


def fault(status: os.stat_result) -> str:
    """The way in which another user could change a file; empty if no other user could."""
    is_foreign = status.st_uid != os.geteuid()
    if is_foreign or stat.S_ISLNK(status.st_mode):
        return "another user's" if is_foreign else "a link"
    return "others may write there" if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


def make_missing(path: Path, mode: int = 0o700) -> None:
    """Create a directory and its parents where they are missing.

    Errors: OSError.
    """
    if path.is_dir():
        return
    make_missing(path.parent, 0o777)
    with contextlib.suppress(FileExistsError):  # another process was faster
        calls.make_directory(path, mode)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a directory and yield its descriptor."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def store(directory: int, name: str, content: bytes) -> None:
    """Write a new file to the disk. The caller flushes the directory, and with it the file's name.

    Errors: OSError.
    """
    descriptor = calls.create(directory, name)
    try:
        calls.write(descriptor, content)
        calls.flush(descriptor)
    finally:
        os.close(descriptor)
