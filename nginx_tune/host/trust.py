"""The programs and files that root may trust: those that nobody but root could write.

Any process can call itself nginx, any directory can be in PATH, and a program is as trustworthy as
everyone who may write its file, a directory on the way to it, its loader or a library that it
names. So each step of the path is checked, including symbolic links, and everything that the file
loads.

An access list (ACL) cannot bypass this: the file's group bits are its mask. File systems that an
ordinary user can mount (FUSE, removable media) may show any owner, but are mounted nosuid.
Source: acl(5), fusermount3(1), udisks(8).

For an ordinary user the same checks apply, and the user's own files are trusted.

This file is part of the collector: standard library, Python 3.6.
"""

import glob
import os
import posixpath
import re
import stat
from typing import Dict, Iterator, List, Optional, Set, Tuple

from nginx_tune.host.parse_elf import ElfPaths, expand, parse_elf

_MOST_LINKS = 40
_MOST_LIBRARIES = 256
_NOSUID = 2
_LONGEST_PART = 1 << 20
"""Maximum number of bytes to read at once from a file, since its own size fields are not
trusted."""
_LIBRARY_DIRECTORIES = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")


def acts_as_root() -> bool:
    """True when this process is root of a machine with other users.

    Root of a user namespace with no other user ids counts as an ordinary user.
    """
    if os.geteuid() != 0:
        return False
    try:
        with open("/proc/self/uid_map") as file:  # noqa: PTH123
            counts = [int(line.split()[2]) for line in file]
    except (OSError, ValueError, IndexError):
        return True
    return sum(counts) != 1


def distrust(path: str) -> str:
    """The reason why an untrusted user could write a program; empty if none could."""
    return _Looker().program(path)


def distrust_directory(path: str) -> str:
    """The reason why an untrusted user could change or create a directory's contents.

    Empty if none could.
    """
    return _Looker().directory(path)


def distrust_place(path: str) -> str:
    """The reason why others could change or replace this user's files at a path; otherwise empty.

    Unlike for programs, a directory with the sticky bit, such as /tmp, is accepted: everyone may
    create files in it, but only their owner may rename or remove them.
    """
    return _Looker(sticky_will_do=True).directory(path)


def distrust_handed(path: str, user: int) -> str:
    """The reason why a file that root was given may be another user's; empty if it cannot be.

    ``user`` typed the command and is trusted like root. File systems mounted nosuid are accepted,
    since /home and /tmp of hardened hosts are; root cannot read a user's FUSE mount.
    """
    return _Looker(sticky_will_do=True, handed_by=user).directory(path)


def foreign_link(path: str) -> str:
    """The reason not to write to a path: it leads through another user's link, or ends in one.

    The kernel may follow such a link: fs.protected_symlinks protects only sticky directories, and
    can be off.
    Shape: empty if there is no such link.
    """
    try:
        for step, status in _steps(posixpath.join(os.getcwd(), path)):  # noqa: PTH109
            if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
                return "{} is a link of user {}".format(step, status.st_uid)
    except OSError:  # a missing file is created, and an invisible one cannot be written
        return ""
    return ""


def distrust_process(pid: int) -> str:
    """The reason not to run the program of a process; empty if there is none.

    The check is of the file that the process really runs: an upgrade may have put another one in
    its place, or removed it.
    """
    return distrust_opened("/proc/{}/exe".format(pid))


def distrust_opened(link: str) -> str:
    """The reason not to run the file behind a link in /proc (``PID/exe``, ``self/fd/N``).

    A descriptor keeps its file even after the process has ended. Shape: empty if there is none.
    """
    looker = _Looker()
    try:
        running, path = os.stat(link), os.readlink(link)  # noqa: PTH115, PTH116
    except OSError as error:
        return "{}: {}".format(link, error.strerror)
    path = re.sub(r" \(deleted\)$", "", path)
    why = looker.fault(path, running)
    return why or looker.directory(posixpath.dirname(path)) or looker.loaded(link, path)


class _Looker:
    """Checks files and what they load, each only once."""

    def __init__(self, *, sticky_will_do: bool = False, handed_by: Optional[int] = None) -> None:
        self._sticky_will_do = sticky_will_do
        self._owners = frozenset({0, os.geteuid()}) if not acts_as_root() else frozenset({0})
        self._group = None if os.geteuid() == 0 else os.getegid()  # type: Optional[int]
        self._heeds_nosuid = handed_by is None
        if handed_by is not None:
            self._owners |= {handed_by}
            # On systems with a group for each user, it has the user's number.
            self._group = handed_by or self._group
        self._places: Dict[str, str] = {}
        self._programs: Set[str] = set()

    def program(self, path: str) -> str:
        """The reason to distrust a program or a library."""
        if not posixpath.isabs(path):
            return "{} is searched for in the working directory".format(path)
        real, why = self.place(path)
        if why or real in self._programs:
            return why
        if len(self._programs) > _MOST_LIBRARIES:
            return "{} names too many libraries".format(path)
        self._programs.add(real)
        return self.loaded(real, real)

    def loaded(self, file: str, name: str) -> str:
        """The reason to distrust something that a file loads; ``name`` is the file's path."""
        try:
            with open(file, "rb") as opened:  # noqa: PTH123

                def read_at(offset: int, size: int) -> bytes:
                    opened.seek(offset)
                    return opened.read(min(size, _LONGEST_PART))

                head = read_at(0, 256)
                if head[:2] == b"#!":
                    words = os.fsdecode(head[2:].split(b"\n", 1)[0]).split()
                    return self.program(words[0]) if words else ""
                elf = parse_elf(read_at)
        except (OSError, ValueError, OverflowError) as error:
            return "{}: {}".format(name, getattr(error, "strerror", None) or error)
        return "" if elf is None else self._libraries(elf, name)

    def _libraries(self, elf: ElfPaths, name: str) -> str:
        if elf.interpreter:
            why = self.program(elf.interpreter)
            if why:
                return "{}: its loader: {}".format(name, why)
        origin = posixpath.dirname(name)
        directories = []
        for element in elf.directories:
            # The loader defines $LIB and $PLATFORM, so each possible place is checked.
            for lib in ("lib", "lib64") if "LIB" in element else ("",):
                full = expand(element, {"ORIGIN": origin, "LIB": lib, "PLATFORM": os.uname()[4]})
                why = self.directory(full)
                if why:
                    return "{}: it takes libraries from {}: {}".format(name, full or "''", why)
                directories.append(full)
        for library in elf.libraries:
            found = library if "/" in library else _find_library(library, directories)
            why = self.program(found) if found else ""
            if why:
                return "{}: its library {}: {}".format(name, library, why)
        return ""

    def directory(self, path: str) -> str:
        """The reason why an untrusted user may change a directory's contents, or create it."""
        if not posixpath.isabs(path):
            return "it is the working directory"
        return self.place(path, may_be_absent=True)[1]

    def place(self, path: str, *, may_be_absent: bool = False) -> Tuple[str, str]:
        """The path with its links resolved, and the reason to distrust one of its steps."""
        done, before = "", None  # type: Tuple[str, Optional[int]]
        try:
            for step, status in _steps(path):
                done = step
                if step in self._places:
                    why = self._places[step]
                else:
                    why = self.fault(step, status)
                    if not why and self._heeds_nosuid:
                        why = self._brought(step, status, before)
                    self._places[step] = why
                if why:
                    return done, why
                before = status.st_dev
        except FileNotFoundError as error:
            return done, "" if may_be_absent else "{}: no such file".format(error.filename)
        except OSError as error:
            return done, "{}: {}".format(error.filename or path, error.strerror)
        return done, ""

    def fault(self, path: str, status: os.stat_result) -> str:
        """The reason why an untrusted user may write a file, or the names in a directory."""
        if status.st_uid not in self._owners:
            return "{} belongs to user {}".format(path, status.st_uid)
        if stat.S_ISLNK(status.st_mode):
            return ""
        if self._sticky_will_do and status.st_mode & stat.S_ISVTX and stat.S_ISDIR(status.st_mode):
            return ""
        if status.st_mode & stat.S_IWOTH:
            return "{} can be written by everyone".format(path)
        if status.st_mode & stat.S_IWGRP and status.st_gid != self._group:
            return "{} can be written by group {}".format(path, status.st_gid)
        return ""

    @staticmethod
    def _brought(path: str, status: os.stat_result, before: Optional[int]) -> str:
        """The reason to suspect that an ordinary user mounted the file system at ``path``.

        Empty if nothing suggests it.
        """
        if before is None or status.st_dev == before or stat.S_ISLNK(status.st_mode):
            return ""
        if not _is_nosuid(path) or _is_nosuid("/"):
            return ""
        return "{} is a separate file system, mounted nosuid".format(path)


def _is_nosuid(path: str) -> bool:
    return bool(os.statvfs(path).f_flag & _NOSUID)


def _steps(path: str) -> Iterator[Tuple[str, os.stat_result]]:
    """The directories and links on a path, and finally the file itself.

    Errors: OSError for a directory, link or file that is missing.
    """
    yield "/", os.lstat("/")
    done = ""
    parts = path.split("/")
    links = 0
    while parts:
        part = parts.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            done = posixpath.dirname(done).rstrip("/")
            continue
        step = done + "/" + part
        status = os.lstat(step)
        yield step, status
        if not stat.S_ISLNK(status.st_mode):
            done = step
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(0, "too many links", path)
        target = os.readlink(step)  # noqa: PTH115
        done = "" if target.startswith("/") else done
        parts = target.split("/") + parts
        if not parts or all(rest in ("", ".", "..") for rest in parts):
            yield done or "/", os.lstat(done or "/")


def _find_library(name: str, directories: List[str]) -> str:
    """The path at which the loader finds a library; empty if unknown."""
    for directory in directories + _library_directories():
        path = posixpath.join(directory, name)
        if os.path.exists(path):  # noqa: PTH110
            return path
    return ""


_found_directories: List[str] = []


def _library_directories() -> List[str]:
    """The directories of the loader's configuration, then its defaults.

    Source: ldconfig(8), /etc/ld.so.conf; musl's etc/ld-musl-ARCH.path.
    """
    if not _found_directories:
        files = ["/etc/ld.so.conf"] + sorted(glob.glob("/etc/ld-musl-*.path"))  # noqa: PTH207, RUF005
        while files and len(_found_directories) < _MOST_LIBRARIES:
            try:
                with open(files.pop(0), errors="surrogateescape") as file:  # noqa: PTH123
                    lines = [line.split("#", 1)[0].strip() for line in file]
            except OSError:
                continue
            for word in " ".join(lines).replace(":", " ").split():
                if posixpath.isabs(word) and "*" not in word:
                    is_file = os.path.isfile(word)  # noqa: PTH113
                    (files if is_file else _found_directories).append(word)
                elif "*" in word:
                    files += sorted(glob.glob(posixpath.join("/etc", word)))  # noqa: PTH207
        _found_directories.extend(_LIBRARY_DIRECTORIES)
    return list(_found_directories)


def caller_id() -> int:
    """The id of the calling user; under sudo, of the user who typed the command.

    Source: sudo(8), SUDO_UID. It gives no more rights than sudo already gave that user, whose files
    are trusted like root's if the command names them.
    """
    asked = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and re.fullmatch(r"[0-9]{1,10}", asked):
        return int(asked)
    return os.getuid()
