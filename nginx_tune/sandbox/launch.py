"""Start a program inside the sandbox: what a fork does before it runs nginx.

Three processes: the one that the caller forked has namespaces of its own made and waits; its child
is the first process of the new process namespace, builds the root, starts nginx and collects what
ends; the third gives up its rights and becomes nginx. All end when any of the first two does: the
kernel kills a process namespace with its first process.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from nginx_tune.errors import NginxTuneError, UndecidedError
from nginx_tune.host.door import HostReadError, ProgramResult
from nginx_tune.host.lifetime import die_with_parent
from nginx_tune.host.program import run_bounded
from nginx_tune.sandbox import kernel_calls as calls
from nginx_tune.sandbox.capabilities import drop_all, drop_capabilities
from nginx_tune.sandbox.landlock import restrict_writes
from nginx_tune.sandbox.plan_filter import ARCHITECTURES, plan_filter
from nginx_tune.sandbox.process_numbers import can_limit_numbers, limit_numbers
from nginx_tune.sandbox.root import DEVICES, RootPlan, build_root, plan_root
from nginx_tune.sandbox.spec import Confinement

_NAMESPACES = (
    calls.CLONE_NEWNS
    | calls.CLONE_NEWPID
    | calls.CLONE_NEWIPC
    | calls.CLONE_NEWUTS
    | calls.CLONE_NEWCGROUP
)
_STREAMS = ("/proc/self/fd/1", "/proc/self/fd/2")
"""``/dev/stdout`` and ``/dev/stderr`` are opened anew by those names."""
_FAILED = 125
_USUAL_STACK_BYTES = 8 << 20
_SIGNALLED = 128


class Prepared(NamedTuple):
    """A sandbox that is planned; any number of programs can be started in such a one."""

    wanted: Confinement
    plan: RootPlan
    filter: bytes | None


def prepare(wanted: Confinement) -> Prepared:
    """Plan a sandbox.

    Errors: UndecidedError for a wall that this host cannot have and that is not given up.
    """
    machine = calls.architecture()
    program = plan_filter(
        machine, unix_sockets=wanted.uses_unix_sockets, raw_sockets=wanted.transparent
    )
    if program is None and "seccomp" not in wanted.weaker:
        raise UndecidedError(
            f"no filter of system calls for {machine}: its call numbers are known here for "
            f"{' and '.join(ARCHITECTURES)} alone",
            hint="--weaker-walls seccomp does without; all other walls stand",
        )
    return Prepared(wanted, plan_root(wanted), program)


class Entrance:
    """What a forked child calls before exec, and its parent after: use one for each start."""

    def __init__(
        self,
        prepared: Prepared,
        *,
        join_files: Sequence[Path] = (),
        before: Callable[[], None] | None = None,
    ) -> None:
        self._prepared = prepared
        self._join_files = join_files
        self._before = before
        self._told, self._tell = os.pipe()

    def enter(self) -> None:
        """Return only in the process that is to become nginx, inside the sandbox."""
        try:
            self._enter()
        except BaseException as error:  # noqa: BLE001  # there is nobody above to raise it to
            self._fail(error)

    def _enter(self) -> None:
        die_with_parent()
        joins = [os.open(file, os.O_WRONLY | os.O_CLOEXEC) for file in self._join_files]
        if self._before is not None:
            self._before()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        _allow_descriptors()
        _end_first()
        calls.unshare(_NAMESPACES)
        first = os.fork()
        if first:
            os.write(self._tell, b"%d\n" % first)
            _close_all()
            _wait_for(first)
        die_with_parent()
        self._limit_processes()
        build_root(self._prepared.plan)
        ruled = os.fork()
        if ruled:
            self._be_first(ruled)
        for descriptor in joins:
            os.write(descriptor, b"0")
            os.close(descriptor)
        self._give_up_rights()

    def _limit_processes(self) -> None:
        """Where the namespace can have a limit of its own, beside a cgroup or in its place."""
        wanted = self._prepared.wanted
        most = wanted.limits.processes
        is_bounded = limit_numbers(most) or bool(self._join_files) or os.geteuid() != 0
        if not is_bounded and can_limit_numbers(most) and "processes" not in wanted.weaker:
            raise UndecidedError(
                "the processes of nginx cannot be bounded: kernel.pid_max of their namespace "
                "takes no writes",
                hint="--weaker-walls processes does without",
            )

    def _give_up_rights(self) -> None:
        wanted, plan = self._prepared.wanted, self._prepared.plan
        is_root = os.geteuid() == 0
        _limit(wanted, is_root=is_root)
        calls.no_new_privileges()
        writable = [*plan.writable, "/dev/shm"]  # noqa: S108  # its own
        files = [*(f"/dev/{name}" for name in DEVICES), *_STREAMS]
        restrict_writes(writable, files)
        drop_capabilities(is_root=is_root, transparent=wanted.transparent)
        self._filter()

    def _filter(self) -> None:
        if self._prepared.filter is None:
            return
        try:
            calls.install_filter(self._prepared.filter)
        except OSError as error:
            if "seccomp" not in self._prepared.wanted.weaker:
                raise UndecidedError(
                    f"the kernel takes no filter of system calls: {error.strerror}",
                    hint="--weaker-walls seccomp does without",
                ) from None

    def _be_first(self, ruled: int) -> NoReturn:
        """The first process: without rights, memory that can be read and open files.

        What it fails on it must be able to tell: its end is the end of all the others, at once.
        """
        calls.hide_memory()
        calls.no_new_privileges()
        drop_all()
        self._filter()
        _close_all()
        _wait_for(ruled)

    def _fail(self, error: BaseException) -> NoReturn:
        hint = ""
        if isinstance(error, NginxTuneError):
            text, hint = error.message, error.hint
        else:
            place, reason = (getattr(error, name, None) for name in ("filename", "strerror"))
            text = f"{place}: " if place else ""
            text += reason or f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            os.write(self._tell, f"!{text}\t{hint}\n".encode(errors="replace"))
        os._exit(_FAILED)

    def finish(self) -> int:
        """Once nginx runs: the first process's id, as it is known out here.

        Errors: UndecidedError with what kept the sandbox from being made.
        """
        os.close(self._tell)
        with os.fdopen(self._told, "rb") as pipe:
            lines = pipe.read().decode(errors="replace").splitlines()
        for line in lines:
            if line.startswith("!"):
                text, _, hint = line[1:].partition("\t")
                raise UndecidedError(f"the sandbox cannot be made: {text}", hint=hint)
        return int(lines[0]) if lines else 0

    def cancel(self) -> None:
        """Let go of it when nothing was started."""
        for descriptor in (self._told, self._tell):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def run_inside(
    argv: list[str],
    sandbox: Prepared,
    timeout_seconds: float,
    *,
    join_files: Sequence[Path] = (),
) -> ProgramResult:
    """What a program says inside a sandbox, within the time.

    Errors: HostReadError when it cannot be started or takes longer; UndecidedError when the
            sandbox cannot be made.
    """
    entrance = Entrance(sandbox, join_files=join_files)
    try:
        said = run_bounded(argv, timeout_seconds, is_checked=True, enter=entrance.enter)
    except HostReadError:
        entrance.cancel()
        raise
    entrance.finish()
    return said


def _allow_descriptors() -> None:
    """As many descriptors as root might ask for: the right to ask is given up."""
    with contextlib.suppress(OSError, ValueError):
        most = int(Path("/proc/sys/fs/nr_open").read_text())
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))


def _end_first() -> None:
    """Be what the kernel ends first when memory is short: nobody else is to suffer.

    None of the sandbox can take it back: that needs CAP_SYS_RESOURCE (proc(5)).
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _limit(wanted: Confinement, *, is_root: bool) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    size = wanted.limits.file_bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    # A stack is a private mapping that may be written: RLIMIT_DATA counts all of it (Linux 4.7).
    threads = min(wanted.threads, wanted.limits.processes)
    size = wanted.limits.data_bytes + threads * _stack_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    if not is_root:
        # In a user namespace of its own these are counted by themselves (Linux 5.14).
        with contextlib.suppress(OSError, ValueError):
            most = wanted.limits.processes
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _stack_bytes() -> int:
    """Of a thread that asks for no size: the soft limit. Source: pthread_create(3)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return _USUAL_STACK_BYTES if soft == resource.RLIM_INFINITY else soft


def _close_all() -> None:
    """Every descriptor: whoever waits for their end waits for nginx alone."""
    os.closerange(0, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _wait_for(child: int) -> NoReturn:
    """Collect children until none is left; end as the one that counts did.

    One that ends in good order may leave others behind: nginx that goes to the background.
    """
    status = _FAILED
    while True:
        try:
            pid, ended = os.wait()
        except ChildProcessError:
            break
        except InterruptedError:
            continue
        if pid == child:
            status = os.waitstatus_to_exitcode(ended)
            if status:
                break
    os._exit(status if status >= 0 else _SIGNALLED - status)
