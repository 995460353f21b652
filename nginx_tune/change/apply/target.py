"""The nginx of a change: its processes, their reload, the files that it reads, its logs.

Includes are followed here, starting at the main file. The output of ``nginx -T`` alone cannot be
trusted: a line of a file may look like the heading of another file.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shlex
import signal
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nginx_tune.change.apply import calls
from nginx_tune.change.apply.model_journal import (
    LeftFile,
    RefusedError,
    RejectedError,
    TargetNginx,
    Tested,
)
from nginx_tune.conf.dumps import printed
from nginx_tune.conf.listeners import listeners
from nginx_tune.conf.logs import error_logs
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.errors import UndecidedError, UsageError
from nginx_tune.host.door import MOST_BYTES, Host, HostReadError, Missing, read_parsed
from nginx_tune.host.parse_nginx import VersionOutput, global_directives, parse_start_options
from nginx_tune.host.parse_proc import parse_parent_pid
from nginx_tune.nginx.binary import choose_nginx, read_build
from nginx_tune.nginx.processes import Master, find_host_masters, find_masters, same_mounts
from nginx_tune.nginx.reload.address import AcceptingSocket, Address, addresses_of, lost_addresses
from nginx_tune.nginx.reload.workers import (
    Generations,
    OldServeError,
    Process,
    ReloadError,
    lives,
    process_of,
)

_MOST_PID_BYTES = 64
_MOST_NAMED = 3


class ManagedNginx(NamedTuple):
    """The nginx of a change, its program and its configuration."""

    master: Process | None
    build: VersionOutput
    conf_path: str
    prefix: str
    test_command: list[str]


class EffectiveConf(NamedTuple):
    """A configuration that the target's ``nginx -T`` accepted."""

    files: list[str]
    """Files that the includes reach and that ``nginx -T`` printed: only these may be changed."""
    reading: FollowedFiles
    """All files that the includes reach."""
    addresses: list[Address]
    error_logs: list[str]
    pid_path: str
    sockets: list[str]
    quic_addresses: list[Address]
    """Addresses of HTTP/3, which are not checked for answers."""
    asked: tuple[str, ...] = ()
    """The names and patterns in ``include`` lines."""


def find_subject(
    host: Host,
    *,
    binary: str | None,
    pid: int | None,
    conf_path: str | None,
    prefix: str | None,
    needs_master: bool,
) -> ManagedNginx:
    """The running nginx that reads a configuration, or the master ``pid`` with its own file.

    Without ``needs_master``, nginx need not run; if it does, its start options are used.
    Errors: RefusedError if no nginx fits, or if it runs in a container, is in the middle of a
            binary upgrade or has no workers of its own.
    """
    masters = find_host_masters(host, pid=pid)
    master: Master | None = None
    if needs_master:
        master = _chosen(host, masters, binary, pid, conf_path)
        _check_master(host, master, masters)
    else:
        master = _reader(host, masters, binary, pid, conf_path)
    if master is not None and pid is not None:
        own = _own_conf(host, master)
        if own and conf_path and os.path.realpath(own) != os.path.realpath(conf_path):
            conf_path = own
    program = binary or (f"/proc/{master.pid}/exe" if master else None)
    if program is None:
        program = str(choose_nginx(host, [], binary=None).program)
    build = read_build(host, program)
    started = [] if master is None else master.arguments
    options = parse_start_options(started)
    prefix = options.prefix or prefix or build.prefix
    path = conf_path or options.conf_path or build.conf_path
    command = [program, "-T", "-c", posixpath.join(prefix, path), "-p", prefix]
    globals_ = global_directives(started)
    return ManagedNginx(
        master=process_of(master.pid) if master is not None and needs_master else None,
        build=build,
        conf_path=posixpath.join(prefix, path),
        prefix=prefix,
        test_command=[*command, "-g", globals_] if globals_ else command,
    )


def _chosen(
    host: Host, masters: Sequence[Master], binary: str | None, pid: int | None, path: str | None
) -> Master:
    if pid is None and path is not None:
        real = os.path.realpath(path)
        masters = [master for master in masters if _reads(host, master, real)]
    for master in masters:
        if master.pid == pid:
            _check_files(host, master)
    choice = choose_nginx(host, masters, binary=binary, pid=pid, to_run=True)
    if choice.master is None:
        refused = ""
        if choice.candidates:
            first = choice.candidates[0]
            refused = f": {first.binary or f'process {first.pid}'}: {first.reason}"
        raise RefusedError(
            f"no running nginx reads this configuration{refused}",
            hint="name its master with --pid, or give --no-reload to only change files",
        )
    return choice.master


def _reader(
    host: Host, masters: Sequence[Master], binary: str | None, pid: int | None, path: str | None
) -> Master | None:
    """The running master that reads the files or has the id ``pid``; None if there is none."""
    if pid is None:
        real = None if path is None else os.path.realpath(path)
        masters = [
            master
            for master in masters
            if real and same_mounts(host, master.pid) is True and _reads(host, master, real)
        ]
    if not masters and pid is None:
        return None
    return choose_nginx(host, masters, binary=binary, pid=pid, to_run=True).master


def _reads(host: Host, master: Master, real_path: str) -> bool:
    """True if this file is the main configuration file of a master."""
    own = _own_conf(host, master)
    return own is not None and os.path.realpath(own) == real_path


def _own_conf(host: Host, master: Master) -> str | None:
    """The main configuration file of a master; None if it cannot be determined."""
    options = parse_start_options(master.arguments)
    if options.conf_path is None:
        if isinstance(master.binary, Missing) or same_mounts(host, master.pid) is not True:
            return None
        try:
            build = read_build(host, f"/proc/{master.pid}/exe")
        except UsageError:
            return None
        return posixpath.join(options.prefix or build.prefix, build.conf_path)
    return posixpath.join(options.prefix or "/", options.conf_path)


def find_master(host: Host, conf_path: str) -> Process | None:
    """The only running master that reads a configuration; None if there is none or several."""
    real = os.path.realpath(conf_path)
    pids = [master.pid for master in find_host_masters(host) if _reads(host, master, real)]
    return process_of(pids[0]) if len(pids) == 1 else None


def _check_files(host: Host, master: Master) -> None:
    """Check that a master sees the same files at the same paths as this process.

    Errors: RefusedError.
    """
    same = same_mounts(host, master.pid)
    if isinstance(same, Missing):
        raise RefusedError(
            f"process {master.pid}: its files cannot be seen: {same.reason}", hint="run it as root"
        )
    if not same:
        raise RefusedError(
            f"nginx (process {master.pid}) runs in another mount namespace (perhaps a container) "
            "or in a chroot",
            hint="change its image or its volume",
        )


def _check_master(host: Host, master: Master, masters: Sequence[Master]) -> None:
    _check_files(host, master)
    if not master.workers or master.workers == [master.pid]:
        raise RefusedError(
            f"nginx (process {master.pid}) has no workers of its own: a reload cannot be checked",
            hint="start it with master_process on",
        )
    relatives = [other.pid for other in masters if _parent(host, other.pid) == master.pid]
    parent = _parent(host, master.pid)
    relatives += [other.pid for other in masters if other.pid == parent]
    if relatives:
        raise RefusedError(
            f"a binary upgrade of nginx is under way: masters {master.pid} and {relatives[0]} "
            "both run",
            hint="finish it (QUIT the old master) or take it back first",
        )


def _parent(host: Host, pid: int) -> int | None:
    found = read_parsed(host, f"/proc/{pid}/stat", parse_parent_pid)
    return None if isinstance(found, Missing) else found


def read_as_target(host: Host, subject: ManagedNginx) -> EffectiveConf:
    """The configuration that the target's ``nginx -T`` accepts, with the bytes on the disk.

    Errors: RejectedError with nginx's message if it rejects them; UndecidedError if it cannot run.
    """
    command = subject.test_command
    try:
        result = host.run(list(command), timeout_seconds=_COMMAND_SECONDS)
    except HostReadError as error:
        raise UndecidedError(f"{command[0]}: cannot run nginx: {error.reason}") from None
    if result.status != 0:
        lines = [line for line in result.stderr.splitlines() if line.strip()] or ["no message"]
        worst = next((line for line in lines if "[emerg]" in line), lines[0])
        raise RejectedError(worst.removeprefix("nginx: ").strip())
    reading = read_files(host, subject.conf_path, prefix=subject.prefix)
    tree = reading.tree
    sockets = listeners(tree)
    return EffectiveConf(
        files=printed(result.stdout.encode(errors="surrogateescape"), reading.files),
        reading=reading,
        addresses=addresses_of(listener for listener in sockets if not listener.is_quic),
        quic_addresses=addresses_of(listener for listener in sockets if listener.is_quic),
        error_logs=_logs(tree, subject),
        pid_path=pid_path(tree, subject),
        sockets=[listener.socket.host for listener in sockets if listener.is_unix],
        asked=tree.asked,
    )


def _logs(tree: ConfTree, subject: ManagedNginx) -> list[str]:
    found = error_logs(tree, subject.build.error_log_path)
    if subject.master is not None:
        # The main log goes to this file regardless of the directives. Source:
        # ngx_log_redirect_stderr.
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/{subject.master.pid}/fd/2"))  # noqa: PTH115
    return [path for path in found if path != "/dev/stderr"]


def pid_path(tree: ConfTree, subject: ManagedNginx) -> str:
    """The path of the pid file under a configuration."""
    lines = tree.main.all("pid")
    name = lines[-1].value if lines else subject.build.pid_path
    return tree.full_path(name) or name


def check_listens(before: EffectiveConf, after: EffectiveConf) -> None:
    """Check that no listening address is lost: ``nginx -t`` accepts even a file without servers.

    Errors: RefusedError that names the lost addresses.
    """
    lost = lost_addresses(before.addresses, after.addresses)
    lost_quic = lost_addresses(before.quic_addresses, after.quic_addresses)
    lost += [f"{address} (HTTP/3)" for address in lost_quic]
    if lost:
        more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
        raise RefusedError(
            f"nginx would no longer listen at {', '.join(lost[:_MOST_NAMED])}{more}",
            hint="give --accept-lost if that is intended",
        )


def describe_target(
    subject: ManagedNginx,
    before: EffectiveConf,
    *,
    workers: Collection[Process],
    silent: Collection[AcceptingSocket],
    reload_command: Sequence[str],
) -> TargetNginx:
    """The data about nginx for a rollback, which then need not read the configuration."""
    return TargetNginx(
        conf_path=subject.conf_path,
        master=subject.master,
        workers=sorted(workers, key=lambda worker: worker.pid),
        reload_command=list(reload_command),
        error_logs=before.error_logs,
        pid_file=_left_file(before.pid_path),
        sockets=[path for path in before.sockets if _is_socket(path)],
        addresses=before.addresses,
        silent=sorted(silent),
    )


def describe_test(before: EffectiveConf, after: EffectiveConf) -> Tested:
    """The record of a passed test: the new error logs, Unix sockets and pid file."""
    return Tested(
        error_logs=after.error_logs,
        new_sockets=sorted(set(after.sockets) - set(before.sockets)),
        new_pid_path=after.pid_path if after.pid_path != before.pid_path else None,
    )


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return False


def _left_file(path: str) -> LeftFile | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        return LeftFile(
            path=path,
            content=file.read(_MOST_PID_BYTES),
            mode=stat.S_IMODE(status.st_mode),
            user=status.st_uid,
            group=status.st_gid,
        )


class FollowedFiles(NamedTuple):
    """The files of a configuration on the disk."""

    tree: ConfTree
    files: dict[str, bytes]
    """The bytes of every file that could be read, by the path that an include leads to."""
    directories: list[str]
    """The directories in which a pattern of an include was matched."""
    places: list[str]
    """The paths of these files and directories, and of files that do not exist."""


class _Reader:
    """Reader of a host's files, with those of a change in place; it records what it reads."""

    def __init__(self, host: Host, contents: Mapping[str, bytes]) -> None:
        self._host = host
        self._contents = contents
        self.files: dict[str, bytes] = {}
        self.directories: dict[str, None] = {}
        self.places: dict[str, None] = {}

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file."""
        self.places[path] = None
        new = self._contents.get(os.path.realpath(path))
        data = self._host.read_bytes(path, limit_bytes=MOST_BYTES) if new is None else new
        self.files[path] = data
        return data

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, including those of new files."""
        self.places[path] = self.directories[path] = None
        real = os.path.realpath(path)
        paths = map(posixpath.split, self._contents)
        new = {name for directory, name in paths if directory == real}
        return [*new, *(name for name in self._host.list_dir(path) if name not in new)]


def read_files(
    host: Host, conf_path: str, *, prefix: str, contents: Mapping[str, bytes] | None = None
) -> FollowedFiles:
    """The files that the includes reach; ``contents`` replaces those on the disk.

    The paths in ``contents`` have every link resolved.
    Errors: none, as for ``read_tree``.
    """
    reader = _Reader(host, contents or {})
    tree = read_tree(conf_path, reader, prefix=prefix)
    return FollowedFiles(tree, reader.files, list(reader.directories), list(reader.places))


def check_included(changed: Iterable[str], files: Iterable[str]) -> None:
    """Check that the includes of the new configuration reach every changed file.

    The paths in ``changed`` have every link resolved.
    Errors: RefusedError.
    """
    loaded = {os.path.realpath(path) for path in files}
    for path in changed:
        if path not in loaded:
            raise RefusedError(f"{path}: nothing includes it, so it has no effect")


_COMMAND_SECONDS = 60.0


def generations(host: Host, process: Process) -> Generations:
    """The current workers of a master, those that serve and those that exit.

    Errors: ReloadError if the master has ended.
    """
    masters = find_masters(host) if lives(process) else []
    master = next((master for master in masters if master.pid == process.pid), None)
    if master is None:
        raise ReloadError(f"the nginx master process {process.pid} has ended")
    return Generations(_processes(master.workers), _processes(master.leaving))


def _processes(pids: Sequence[int]) -> frozenset[Process]:
    return frozenset(process for pid in pids if (process := process_of(pid)) is not None)


def refuse_unless_heard(process: Process) -> None:
    """Check that this user may signal the master (CAP_KILL).

    Errors: RefusedError.
    """
    try:
        os.kill(process.pid, 0)
    except PermissionError:
        raise RefusedError(
            f"process {process.pid}: this user may not signal it",
            hint="run it as root, or name --reload-command",
        ) from None
    except ProcessLookupError:
        raise RefusedError(f"the nginx master process {process.pid} has ended") from None


def tell(host: Host, process: Process, command: Sequence[str]) -> None:
    """Make nginx reload, by a SIGHUP or a command; a later process with the same id gets none.

    Errors: ReloadError.
    """
    if command:
        try:
            result = host.run(list(command), timeout_seconds=_COMMAND_SECONDS)
        except HostReadError as error:
            raise ReloadError(error.message) from None
        if result.status != 0:
            text = (result.stderr.strip() or "no message").splitlines()[-1]
            raise ReloadError(f"{shlex.join(command)}: status {result.status}: {text}")
        return
    try:
        held = os.pidfd_open(process.pid)
    except OSError as error:
        raise ReloadError(f"process {process.pid}: {error.strerror}") from None
    try:
        # The pidfd stays with one process: check now that it is the right process.
        if not lives(process):
            raise ReloadError(f"the nginx master process {process.pid} has ended")
        calls.send_signal(held, signal.SIGHUP)
    except OSError as error:
        raise ReloadError(f"process {process.pid}: {error.strerror}") from None
    finally:
        os.close(held)


def unheard(command: Sequence[str], error: OldServeError) -> ReloadError:
    """The error to raise if the old workers still serve after a reload."""
    if not command:
        return error
    return ReloadError(
        f"{shlex.join(command)}: succeeded, but did not reload nginx: {error.message}"
    )


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Block the signals that end a command, so that a rollback is finished first."""
    numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
