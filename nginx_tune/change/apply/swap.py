"""The exchange of old and new files, in both directions, with a check after each exchange.

A new file is written to the directory of the old file, with the same owner, mode and attributes.
Its name is hidden, so that no ``*`` of an include matches it. The exchange swaps both names; the
old file then has the hidden name until the change is kept. After the exchange, the file with the
hidden name is compared with the expected file: no concurrent write is lost (compare and swap).
Source: renameat2(2), glob(7).
"""

import contextlib
import errno
import hashlib
import os
import posixpath
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nginx_tune.change.apply import calls
from nginx_tune.change.apply.journal import opened
from nginx_tune.change.apply.model_journal import Attributes, Entry, ForeignError, RefusedError
from nginx_tune.host.door import MOST_BYTES

_UNFINISHED = ".part"
"""Suffix of the hidden name while the file is being written."""
Original = Callable[[Entry], bytes]
"""Reads the bytes that a changed file had before, from the journal."""


class RegularFile(NamedTuple):
    """Contents and attributes of a regular file."""

    sha256: str
    content: bytes
    attributes: Attributes
    links: int
    inode: int


def read_found(directory: int, name: str) -> RegularFile | None:
    """Read a file in a directory; None if it does not exist.

    Errors: OSError, with ELOOP for a link; ValueError if it is not a regular file or is too large.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        # Before the content, since reading that can change the time of the last read.
        attributes = read_attributes(descriptor)
        content = file.read(MOST_BYTES + 1) or b""
        while len(content) < status.st_size and (more := file.read(MOST_BYTES)):
            content += more
        if len(content) > MOST_BYTES:
            raise ValueError("too large for a configuration file")
        digest = hashlib.sha256(content).hexdigest()
        return RegularFile(digest, content, attributes, status.st_nlink, status.st_ino)


def opened_directory(path: str) -> contextlib.AbstractContextManager[int]:
    """Open the directory of a file and yield its descriptor."""
    return opened(Path(path).parent)


def stage(entry: Entry, content: bytes, attributes: Attributes) -> None:
    """Write the new file to the disk, beside the old one.

    Errors: OSError, as on a full or read-only file system.
    """
    with opened_directory(entry.path) as directory:
        _make(directory, entry.beside, content, attributes, with_times=False)


def _make(
    directory: int, name: str, content: bytes, attributes: Attributes, *, with_times: bool
) -> None:
    calls.unlink(directory, name + _UNFINISHED)
    descriptor = calls.create(directory, name + _UNFINISHED)
    try:
        calls.write(descriptor, content)
        put_attributes(descriptor, attributes, with_times=with_times)
        calls.flush(descriptor)
    finally:
        os.close(descriptor)
    calls.rename_new(directory, name + _UNFINISHED, name)
    calls.flush(directory)


def swap_in(entries: Sequence[Entry]) -> None:
    """Put every staged file in place, created files first.

    Errors: RefusedError if a file was changed since the plan; every old file is back in place then.
    """
    done: list[Entry] = []
    try:
        for entry in in_order(entries):
            with opened_directory(entry.path) as directory:
                _swap_one(directory, entry)
                done.append(entry)
                calls.flush(directory)
    except (OSError, ValueError, RefusedError) as error:
        put_back(done)
        if isinstance(error, RefusedError):
            raise
        raise RefusedError(f"{entry.path}: cannot be replaced: {_words(error)}") from None


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """Files in order, created files first, so that a reload in between sees the old tree."""
    return sorted(entries, key=lambda entry: entry.kind != "create")


def _swap_one(directory: int, entry: Entry) -> None:
    name = posixpath.basename(entry.path)
    if entry.kind == "create":
        try:
            calls.rename_new(directory, entry.beside, name)
        except FileExistsError:
            raise RefusedError(f"{entry.path}: a file exists there now") from None
        return
    calls.exchange(directory, entry.beside, name)
    why = _unlike(directory, entry.beside, entry.sha256_before, entry.attributes)
    if why:
        _exchange_back(directory, entry, entry.sha256_after)
        raise RefusedError(f"{entry.path}: changed since the plan was made: {why}")


def _unlike(
    directory: int, name: str, sha256: str | None, attributes: Attributes | None = None
) -> str:
    """The difference between a file and the expected file, as text; empty if there is none."""
    try:
        found = read_found(directory, name)
    except (OSError, ValueError) as error:
        return _words(error)
    if found is None:
        return "it is gone"
    if found.sha256 != sha256:
        return "its bytes"
    return "" if attributes is None else differing(found.attributes, attributes, with_times=False)


def _exchange_back(directory: int, entry: Entry, ours: str | None) -> None:
    """Undo an exchange that displaced another program's file; the newest file stays in place."""
    name = posixpath.basename(entry.path)
    calls.exchange(directory, entry.beside, name)
    if _unlike(directory, entry.beside, ours):
        # Another program wrote in between, and this exchange displaced its file: put it back.
        calls.exchange(directory, entry.beside, name)


def look(entry: Entry) -> str:
    """The state of a path: ``old`` or ``new`` for the files of the change, else a fault as text."""
    try:
        with opened_directory(entry.path) as directory:
            found = read_found(directory, posixpath.basename(entry.path))
    except (OSError, ValueError) as error:
        return _words(error)
    if found is None:
        return "old" if entry.kind == "create" else "somebody removed it"
    if found.sha256 == entry.sha256_after:
        return "new"
    return "old" if found.sha256 == entry.sha256_before else "somebody else wrote to it"


def _state(entry: Entry) -> str:
    """The answer of ``look``, but ``old`` while the new file still has its hidden name.

    The files were not exchanged yet, so the file in place is not from this change and stays.
    """
    state = look(entry)
    if state in ("old", "new"):
        return state
    with contextlib.suppress(OSError), opened_directory(entry.path) as directory:
        if not _unlike(directory, entry.beside, entry.sha256_after):
            return "old"
    return state


def foreign(entries: Sequence[Entry]) -> dict[str, str]:
    """The paths whose file is neither the old nor the new file, each with its state as text."""
    states = {entry.path: _state(entry) for entry in entries}
    return {path: state for path, state in states.items() if state not in ("old", "new")}


def put_back(entries: Sequence[Entry], original: Original | None = None) -> None:
    """Put back every old file that is not in place.

    ``original`` gives the bytes of an old file that is gone.
    Errors: ForeignError with the files that another program has written to; none is changed then.
    """
    wrong = foreign(entries)
    if wrong:
        raise _foreign_error(wrong)
    done: list[Entry] = []
    for entry in reversed(in_order(entries)):
        with opened_directory(entry.path) as directory:
            why, is_moved = _put_back_one(directory, entry, original)
            if why:
                _redo(done)
                raise _foreign_error({entry.path: why})
            if is_moved:
                done.append(entry)
            calls.flush(directory)
    clear(entries)


def _foreign_error(wrong: Mapping[str, str]) -> ForeignError:
    reasons = "; ".join(f"{path}: {why}" for path, why in wrong.items())
    return ForeignError(
        f"not put back, to keep what others wrote: {reasons}",
        paths=list(wrong),
        hint="restore these files by hand and roll back again",
    )


def _put_back_one(directory: int, entry: Entry, original: Original | None) -> tuple[str, bool]:
    """Put one file back.

    Shape: the reason why it could not be put back (empty if it was), and True if the new file was
    moved away.
    """
    name = posixpath.basename(entry.path)
    state = _state(entry)
    if state == "old" and _holds_foreign(directory, entry):
        # The process died between exchange and check: put the other program's file back.
        _move_in(directory, entry)
        return "somebody else wrote to it", False
    if state != "new":
        return ("" if state == "old" else state), False
    if entry.kind == "create":
        calls.rename_new(directory, name, entry.beside)
    else:
        if not _is_there(directory, entry.beside):
            if original is None or entry.attributes is None:
                return "its old bytes are not known", False
            _make(directory, entry.beside, original(entry), entry.attributes, with_times=True)
        calls.exchange(directory, entry.beside, name)
    if not _unlike(directory, entry.beside, entry.sha256_after):
        return "", True
    with contextlib.suppress(FileExistsError):  # the other program has written a newer one
        _move_in(directory, entry)
    return "somebody else wrote to it", False


def _move_in(directory: int, entry: Entry) -> None:
    name = posixpath.basename(entry.path)
    (calls.rename_new if entry.kind == "create" else calls.exchange)(directory, entry.beside, name)


def _holds_foreign(directory: int, entry: Entry) -> bool:
    """True if the file under the hidden name is neither the old nor the new one."""
    if not _is_there(directory, entry.beside):
        return False
    ours = (entry.sha256_before, entry.sha256_after)
    return all(_unlike(directory, entry.beside, sha256) for sha256 in ours)


def _is_there(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _redo(done: Sequence[Entry]) -> None:
    """Put the new files in place again, since one of the old files cannot be put back."""
    for entry in reversed(done):
        with opened_directory(entry.path) as directory:
            with contextlib.suppress(FileExistsError):
                _move_in(directory, entry)
            calls.flush(directory)


def clear(entries: Sequence[Entry]) -> dict[str, str]:
    """Remove the hidden files, except those that another program has written to.

    A file that cannot be removed does not fail the change: the next recovery tries again.
    Shape: the paths that remain, each with the reason.
    """
    left = {}
    for entry in entries:
        beside = posixpath.join(posixpath.dirname(entry.path), entry.beside)
        try:
            with opened_directory(entry.path) as directory:
                calls.unlink(directory, entry.beside + _UNFINISHED)
                if _holds_foreign(directory, entry):
                    left[beside] = "somebody else wrote to it, so it stays"
                    continue
                if _is_there(directory, entry.beside):
                    calls.unlink(directory, entry.beside)
                    calls.flush(directory)
        except OSError as error:
            left[beside] = f"not removed: {_words(error)}"
    return left


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


IMMUTABLE = 0x10
APPEND_ONLY = 0x20
_SETTABLE = 0x8040CC
"""COMPR 4, SYNC 8, NODUMP 40, NOATIME 80, JOURNAL_DATA 4000, NOCOW 800000.

The file system itself sets the other flags (extents, inline data).
Source: include/uapi/linux/fs.h.
"""
_MODE_BITS = 0o7777


def read_attributes(descriptor: int) -> Attributes:
    """The attributes of an open file.

    Errors: OSError.
    """
    status = os.fstat(descriptor)
    return Attributes(
        mode=status.st_mode & _MODE_BITS,
        user=status.st_uid,
        group=status.st_gid,
        accessed_ns=status.st_atime_ns,
        modified_ns=status.st_mtime_ns,
        extended={name: os.getxattr(descriptor, name) for name in _names(descriptor)},
        inode_flags=calls.inode_flags(descriptor) & _SETTABLE,
    )


def put_attributes(descriptor: int, wanted: Attributes, *, with_times: bool) -> None:
    """Give an open file the wanted attributes.

    The owner comes first, since a change of owner clears mode bits and labels.
    Errors: OSError if an attribute cannot be set, or differs afterwards.
    """
    calls.own(descriptor, wanted.user, wanted.group)
    calls.permit(descriptor, wanted.mode)
    for name in set(_names(descriptor)) - set(wanted.extended):
        calls.remove_attribute(descriptor, name)
    for name, value in wanted.extended.items():
        if _value(descriptor, name) != value:
            calls.set_attribute(descriptor, name, value)
    if wanted.inode_flags != calls.inode_flags(descriptor) & _SETTABLE:
        rest = calls.inode_flags(descriptor) & ~_SETTABLE
        calls.set_inode_flags(descriptor, rest | wanted.inode_flags)
    if with_times:
        calls.set_times(descriptor, wanted.accessed_ns, wanted.modified_ns)
    different = differing(read_attributes(descriptor), wanted, with_times=with_times)
    if different:
        raise OSError(errno.ENOTSUP, f"its {different} cannot be copied to another file")


def differing(one: Attributes, other: Attributes, *, with_times: bool) -> str:
    """The names of the attributes that differ; the time of the last read is not compared."""
    pairs = {
        "owner": (one.user, other.user),
        "group": (one.group, other.group),
        "mode": (one.mode, other.mode),
        "extended attributes": (one.extended, other.extended),
        "inode flags": (one.inode_flags, other.inode_flags),
    }
    if with_times:
        pairs["time of change"] = (one.modified_ns, other.modified_ns)
    return ", ".join(name for name, (this, that) in pairs.items() if this != that)


def _names(descriptor: int) -> list[str]:
    try:
        return os.listxattr(descriptor)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return []
        raise


def _value(descriptor: int, name: str) -> bytes | None:
    try:
        return os.getxattr(descriptor, name)
    except OSError:
        return None
