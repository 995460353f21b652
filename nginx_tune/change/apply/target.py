"""The nginx that a change is for, as it stands: what runs, what it reads, where it logs."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from nginx_tune.change.apply.errors import RefusedError, RejectedError
from nginx_tune.change.apply.model_journal import LeftFile, TargetNginx, Tested
from nginx_tune.change.apply.reading import FollowedFiles, read_files
from nginx_tune.change.apply.server import run_test
from nginx_tune.conf.dump import printed
from nginx_tune.conf.error_log import error_logs
from nginx_tune.conf.listeners import listeners
from nginx_tune.conf.tree import ConfTree
from nginx_tune.errors import UsageError
from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.parse_nginx import VersionOutput, global_directives, parse_start_options
from nginx_tune.host.parse_process import parse_parent_pid
from nginx_tune.nginx.binary import read_build
from nginx_tune.nginx.choice import choose_nginx
from nginx_tune.nginx.processes import Master, find_host_masters, same_mounts
from nginx_tune.nginx.reload.address import AcceptingSocket, Address, addresses_of, lost_addresses
from nginx_tune.nginx.reload.process import Process, process_of
from nginx_tune.nginx.reload.workers import ReloadError

_MOST_PID_BYTES = 64
_MOST_NAMED = 3


class ManagedNginx(NamedTuple):
    """What is changed: an nginx, its program and its configuration."""

    master: Process | None
    build: VersionOutput
    conf_path: str
    prefix: str
    test_command: list[str]


class EffectiveConf(NamedTuple):
    """A configuration as the target itself reads it."""

    files: list[str]
    """That our includes reach and the target has printed: only these may be changed."""
    reading: FollowedFiles
    """All that our includes reach."""
    addresses: list[Address]
    error_logs: list[str]
    pid_path: str
    sockets: list[str]
    quic_addresses: list[Address]
    """Of HTTP/3: nobody can be seen to answer there."""
    asked: tuple[str, ...] = ()
    """What its includes name, patterns as they are."""


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
    """Whether a master reads a file as its main one."""
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
    if same_mounts(host, master.pid) is not True:
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
    """Where nginx has put its main log (ngx_log_redirect_stderr)."""
    try:
        return os.readlink(f"/proc/{pid}/fd/2")  # noqa: PTH115
    except OSError:
        return ""


def pid_path(tree: ConfTree, subject: ManagedNginx) -> str:
    """Where a configuration has nginx keep its number."""
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
    """What a rollback must know, without reading any configuration again."""
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
    """What the new configuration has that the old one had not."""
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
