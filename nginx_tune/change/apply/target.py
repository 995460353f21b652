"""The nginx that a change is for: its processes, their reload, the files that it reads, its logs.

Includes are followed here, from the main file on. The output of ``nginx -T`` is not believed by
itself, since any file may hold a line that looks like the head of another one.
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
from nginx_tune.host.door import MOST_BYTES, Host, HostReadError, Missing, attempt
from nginx_tune.host.parse_nginx import VersionOutput, global_directives, parse_start_options
from nginx_tune.host.parse_proc import parse_parent_pid
from nginx_tune.nginx.binary import choose_nginx, read_build
from nginx_tune.nginx.processes import (
    Master,
    find_host_masters,
    find_masters,
    same_mounts,
)
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
    """The nginx to be changed, its program and its configuration."""

    master: Process | None
    build: VersionOutput
    conf_path: str
    prefix: str
    test_command: list[str]


class EffectiveConf(NamedTuple):
    """A configuration as the target itself reads it."""

    files: list[str]
    """Files that our includes reach and the target has printed: only these may be changed."""
    reading: FollowedFiles
    """All that our includes reach."""
    addresses: list[Address]
    error_logs: list[str]
    pid_path: str
    sockets: list[str]
    quic_addresses: list[Address]
    """Addresses of HTTP/3: nobody can be seen to answer there."""
    asked: tuple[str, ...] = ()
    """The names in its includes, patterns as they are."""


def find_subject(
    host: Host,
    *,
    binary: str | None,
    pid: int | None,
    conf_path: str | None,
    prefix: str | None,
    needs_master: bool,
) -> ManagedNginx:
    """The running nginx that reads a configuration; a named one with what it reads itself.

    Without ``needs_master`` nothing is told to it, but it is tested as that nginx was started.
    Errors: RefusedError when there is none, when it lives in a container, when it is amid a
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
        masters = [one for one in masters if _may_read(host, one, real)]
    for one in masters:
        if one.pid == pid:
            _check_files(host, one)
    choice = choose_nginx(host, masters, binary=binary, pid=pid, to_run=True)
    if choice.master is None:
        refused = next(
            (f": {one.binary or f'process {one.pid}'}: {one.reason}" for one in choice.candidates),
            "",
        )
        raise RefusedError(
            f"no running nginx reads this configuration{refused}",
            hint="name its master with --pid, or give --no-reload to change files alone",
        )
    return choice.master


def _reader(
    host: Host, masters: Sequence[Master], binary: str | None, pid: int | None, path: str | None
) -> Master | None:
    """The running nginx that reads the files, whose start says what relative names stand on."""
    if pid is None:
        real = None if path is None else os.path.realpath(path)
        masters = [
            one
            for one in masters
            if real and same_mounts(host, one.pid) is True and _may_read(host, one, real)
        ]
    if not masters and pid is None:
        return None
    return choose_nginx(host, masters, binary=binary, pid=pid, to_run=True).master


def _may_read(host: Host, master: Master, real_path: str) -> bool:
    """True if a master reads a file as its main one."""
    own = _own_conf(host, master)
    return own is not None and os.path.realpath(own) == real_path


def _own_conf(host: Host, master: Master) -> str | None:
    """The main file that a master reads; null when that cannot be seen."""
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
    """The one running master that reads a configuration; null when there is none, or several."""
    real = os.path.realpath(conf_path)
    found = [one.pid for one in find_host_masters(host) if _may_read(host, one, real)]
    return process_of(found[0]) if len(found) == 1 else None


def _check_files(host: Host, master: Master) -> None:
    """Errors: RefusedError for one that sees other files behind the same paths."""
    same = same_mounts(host, master.pid)
    if isinstance(same, Missing):
        raise RefusedError(
            f"process {master.pid}: its files cannot be seen: {same.reason}", hint="run it as root"
        )
    if not same:
        raise RefusedError(
            f"nginx (process {master.pid}) lives in another mount namespace (a container perhaps) "
            "or in a chroot",
            hint="change the image or the volume that it is started from",
        )


def _check_master(host: Host, master: Master, masters: Sequence[Master]) -> None:
    _check_files(host, master)
    if not master.workers or master.workers == [master.pid]:
        raise RefusedError(
            f"nginx (process {master.pid}) has no worker of its own: its reload cannot be seen",
            hint="start it with master_process on",
        )
    relatives = [one.pid for one in masters if _parent(host, one.pid) == master.pid]
    parent = _parent(host, master.pid)
    relatives += [one.pid for one in masters if one.pid == parent]
    if relatives:
        raise RefusedError(
            f"nginx is amid a binary upgrade: masters {master.pid} and {relatives[0]} both run",
            hint="finish it (QUIT the old one) or take it back first",
        )


def _parent(host: Host, pid: int) -> int | None:
    text = attempt(host.read_text, f"/proc/{pid}/stat")
    found = text if isinstance(text, Missing) else parse_parent_pid(text)
    return None if isinstance(found, Missing) else found


def read_as_target(host: Host, subject: ManagedNginx) -> EffectiveConf:
    """The configuration as ``nginx -T`` accepts it.

    The bytes are those of the disk, by our own reading of the includes: in what is printed, a
    comment of one file can pass for the head of another.
    Errors: RejectedError with the target's message.
    """
    try:
        text = run_test(host, subject.test_command)
    except ReloadError as error:
        raise RejectedError(error.message) from None
    reading = read_files(host, subject.conf_path, prefix=subject.prefix)
    tree = reading.tree
    found = listeners(tree)
    return EffectiveConf(
        files=printed(text.encode(errors="surrogateescape"), reading.files),
        reading=reading,
        addresses=addresses_of(one for one in found if not one.is_quic),
        quic_addresses=addresses_of(one for one in found if one.is_quic),
        error_logs=_logs(tree, subject),
        pid_path=pid_path(tree, subject),
        sockets=[one.socket.host for one in found if one.is_unix],
        asked=tree.asked,
    )


def _logs(tree: ConfTree, subject: ManagedNginx) -> list[str]:
    found = error_logs(tree, subject.build.error_log_path)
    if subject.master is not None:  # whatever it says, this is where the master writes
        target = attempt(_standard_error, subject.master.pid)
        found += [target] if isinstance(target, str) else []
    return [path for path in found if path != "/dev/stderr"]


def _standard_error(pid: int) -> str:
    """The file that nginx has put its main log into (ngx_log_redirect_stderr)."""
    try:
        return os.readlink(f"/proc/{pid}/fd/2")  # noqa: PTH115
    except OSError:
        return ""


def pid_path(tree: ConfTree, subject: ManagedNginx) -> str:
    """The path at which a configuration has nginx keep its number."""
    lines = tree.main.all("pid")
    name = lines[-1].value if lines else subject.build.pid_path
    return tree.full_path(name) or name


def check_listens(before: EffectiveConf, after: EffectiveConf) -> None:
    """A configuration without a server is a valid one, and serves nobody.

    Errors: RefusedError that names the addresses that are lost.
    """
    lost = lost_addresses(before.addresses, after.addresses)
    lost += [
        f"{one} (HTTP/3)" for one in lost_addresses(before.quic_addresses, after.quic_addresses)
    ]
    if lost:
        more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
        raise RefusedError(
            f"nginx would no longer listen at {', '.join(lost[:_MOST_NAMED])}{more}",
            hint="--accept-lost if that is meant",
        )


def describe_target(
    subject: ManagedNginx,
    before: EffectiveConf,
    *,
    workers: Collection[Process],
    silent: Collection[AcceptingSocket],
    reload_command: Sequence[str],
) -> TargetNginx:
    """All that a rollback must know, without reading any configuration again."""
    return TargetNginx(
        conf_path=subject.conf_path,
        master=subject.master,
        workers=sorted(workers, key=lambda one: one.pid),
        reload_command=list(reload_command),
        error_logs=before.error_logs,
        pid_file=_left_file(before.pid_path),
        sockets=[path for path in before.sockets if _is_socket(path)],
        addresses=before.addresses,
        silent=sorted(silent),
    )


def describe_test(before: EffectiveConf, after: EffectiveConf) -> Tested:
    """The parts of the new configuration that the old one had not."""
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
    """A configuration as it lies on the disk."""

    tree: ConfTree
    files: dict[str, bytes]
    """The bytes of every file that could be read, by the name that the include gives it."""
    directories: list[str]
    """Directories in which a pattern of an include was looked for."""
    places: list[str]
    """All of these, and files that are not there."""


class _Reader:
    """A host's files with those of a change in their places, and which of them were asked for."""

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
        """Names in a directory, new ones too."""
        self.places[path] = self.directories[path] = None
        real = os.path.realpath(path)
        new = {posixpath.basename(one) for one in self._contents if posixpath.dirname(one) == real}
        return [*new, *(one for one in self._host.list_dir(path) if one not in new)]


def read_files(
    host: Host, conf_path: str, *, prefix: str, contents: Mapping[str, bytes] | None = None
) -> FollowedFiles:
    """The files that the includes reach; ``contents`` stand in the place of what is there.

    ``contents`` are by path with every link resolved. Errors: none, as of ``read_tree``.
    """
    reader = _Reader(host, contents or {})
    tree = read_tree(conf_path, reader, prefix=prefix)
    return FollowedFiles(tree, reader.files, list(reader.directories), list(reader.places))


def check_included(changed: Iterable[str], files: Iterable[str]) -> None:
    """Nothing is written that the includes of the new configuration do not reach.

    ``changed`` are paths with every link resolved. Errors: RefusedError.
    """
    loaded = {os.path.realpath(path) for path in files}
    for path in changed:
        if path not in loaded:
            raise RefusedError(f"{path}: nothing includes it, so it has no effect")


_COMMAND_SECONDS = 60.0


def master_at(host: Host, process: Process) -> Master | None:
    """The master process as it is now; null when it is gone."""
    if not lives(process):
        return None
    return next((one for one in find_masters(host) if one.pid == process.pid), None)


def generations(host: Host, process: Process) -> Generations:
    """The workers of a master now.

    Errors: ReloadError when the master is gone.
    """
    master = master_at(host, process)
    if master is None:
        raise ReloadError(f"the nginx master process {process.pid} has ended")
    return Generations(_processes(master.workers), _processes(master.leaving))


def _processes(pids: Sequence[int]) -> frozenset[Process]:
    return frozenset(one for pid in pids if (one := process_of(pid)) is not None)


def refuse_unless_heard(process: Process) -> None:
    """Errors: RefusedError when this user may not signal the master (CAP_KILL)."""
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
    """Have nginx read its files: by SIGHUP to this very master, or by a command.

    Errors: ReloadError.
    """
    if command:
        try:
            said = host.run(list(command), timeout_seconds=_COMMAND_SECONDS)
        except HostReadError as error:
            raise ReloadError(error.message) from None
        if said.status != 0:
            text = (said.stderr.strip() or "no message").splitlines()[-1]
            raise ReloadError(f"{shlex.join(command)}: status {said.status}: {text}")
        return
    try:
        held = os.pidfd_open(process.pid)
    except OSError as error:
        raise ReloadError(f"process {process.pid}: {error.strerror}") from None
    try:
        # The descriptor is of one process; that it is the right one is asked after it is held.
        if not lives(process):
            raise ReloadError(f"the nginx master process {process.pid} has ended")
        calls.send_signal(held, signal.SIGHUP)
    except OSError as error:
        raise ReloadError(f"process {process.pid}: {error.strerror}") from None
    finally:
        os.close(held)


def unheard(command: Sequence[str], error: OldServeError) -> ReloadError:
    """The fault where a command ended well and nothing came of it."""
    if not command:
        return error
    return ReloadError(f"{shlex.join(command)}: ended well, but did not reload: {error.message}")


def run_test(host: Host, command: Sequence[str]) -> str:
    """The output of ``nginx -T`` on the files as they are; the target's own judgement.

    Errors: ReloadError with its message when it rejects them, UndecidedError when it cannot run.
    """
    try:
        said = host.run(list(command), timeout_seconds=_COMMAND_SECONDS)
    except HostReadError as error:
        raise UndecidedError(f"{command[0]}: cannot run nginx: {error.reason}") from None
    if said.status != 0:
        lines = [line for line in said.stderr.splitlines() if line.strip()] or ["no message"]
        worst = next((line for line in lines if "[emerg]" in line), lines[0])
        raise ReloadError(worst.removeprefix("nginx: ").strip())
    return said.stdout


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, the signals that end a command wait: what is being put back is put back."""
    numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
