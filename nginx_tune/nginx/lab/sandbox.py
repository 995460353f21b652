"""The sandbox: mount, PID, network and IPC namespaces that end with their first process.

``unshare --kill-child`` ends the first process inside when ``unshare`` ends; ``unshare`` itself
gets SIGKILL when its parent dies. So kill -9 of the command leaves no process, mount or loop
device; the keeper cleans up cgroups and files.

For an ordinary user the sandbox is in a user namespace with the user's own id. nginx then does not
change its user, and there are no cgroups and no loop devices.

Under systemd the cgroups are in a delegated scope, the part of the cgroup v2 tree that a lab may
arrange. They limit what root's nginx may use in total (``bound``).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import msgspec

from nginx_tune.documents.progress import Step
from nginx_tune.errors import (
    ConfigurationError,
    ExitStatus,
    MissingPermissionError,
    MissingToolError,
    NginxTuneError,
    UndecidedError,
    UsageError,
)
from nginx_tune.host.door import Missing
from nginx_tune.host.lab_mark import ENVIRONMENT_MARK
from nginx_tune.host.namespaces import OUTER_PROC_VARIABLE, is_initial_namespace
from nginx_tune.host.parse_proc import parse_capabilities, parse_status
from nginx_tune.host.program import die_with_parent
from nginx_tune.host.programs import ProgramError, find_program, own_module, start_text_program
from nginx_tune.nginx.lab.cgroups import LabCgroups, sandbox_bytes
from nginx_tune.nginx.lab.disks import limit_dirty
from nginx_tune.nginx.lab.keeper import Keeper, make_directory, new_mark, sweep, write_mark
from nginx_tune.nginx.lab.operation import HELLO, A, Hello, Operation, Q, request_line
from nginx_tune.sandbox.confinement import ResourceLimits, SandboxPart, can_limit_numbers

if TYPE_CHECKING:
    from typing_extensions import Self

_LAST_WORDS_SECONDS = 1.0
"""The time to wait for a process to end after its last answer."""
_ERRORS: dict[int, type[NginxTuneError]] = {
    ExitStatus.USAGE: UsageError,
    ExitStatus.CONFIGURATION: ConfigurationError,
    ExitStatus.UNDECIDED: UndecidedError,
}
_given_up: list[SandboxPart] = []


def give_up(parts: Iterable[SandboxPart]) -> None:
    """Accept a sandbox without these parts if this host lacks them (``--weaker-sandbox``)."""
    _given_up[:] = sorted(set(parts))


def given_up() -> list[SandboxPart]:
    """The parts that the user allows a sandbox to lack if they are impossible."""
    return list(_given_up)


def unshare_command(*, root: bool) -> list[str]:
    """The start of a command line that runs the rest of the line in a new sandbox."""
    command = ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork"]
    command += ["--kill-child=SIGKILL", "--mount-proc"]
    if not root:
        command += ["--user", "--map-current-user", "--keep-caps"]
    return [*command, "--"]


class Sandbox:
    """A process inside the sandbox that answers requests, each as a line of JSON.

    A context manager: on exit, all processes inside end and everything is cleaned up.
    """

    def __init__(self, module: str, *, progress: Callable[[str], None] | None = None) -> None:
        self._module = module
        self._progress = progress or (lambda _: None)
        self._keeper: Keeper | None = None
        self._process: subprocess.Popen[str] | None = None
        self._scope: DelegatedScope | None = None
        self.mark = f"{os.getpid()}-{secrets.token_hex(4)}"
        self.root = os.geteuid() == 0

    def __enter__(self) -> Self:
        try:
            find_program("unshare")
        except ProgramError as error:
            raise MissingToolError(f"unshare: {error}", hint="apt-get install util-linux") from None
        if self.root:
            refuse_without_rights(Path("/proc/self/status").read_text(errors="replace"))
        sweep()
        self._keeper = keeper = Keeper()
        try:
            self.directory = make_directory(
                _base_directory(),
                self.mark,
                before_making=lambda path: keeper.note("directory", path),
            )
            self._start()
        except BaseException:
            self._keeper.finish()
            raise
        return self

    def _start(self) -> None:
        command = [*unshare_command(root=self.root), *own_module(self._module)]
        environment = {ENVIRONMENT_MARK: new_mark()}
        # Inside, processes have other ids; the kernel's events have the ids of this /proc.
        outer = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        if is_initial_namespace():
            environment[OUTER_PROC_VARIABLE] = str(outer)
        try:
            self._process = self._spawn(command, environment, outer)
        finally:
            os.close(outer)
        if self._keeper is not None:
            self._keeper.note("process", self._process.pid)
        try:
            hello = Hello(mark=self.mark, directory=str(self.directory), weaker=given_up())
            self.ask(HELLO, hello)
        except NginxTuneError as error:
            refusal = explain_refusal(error.message, is_root=self.root)
            if refusal is None:
                raise
            raise MissingPermissionError(refusal.message, hint=refusal.hint) from None

    @staticmethod
    def _spawn(
        command: list[str], environment: dict[str, str], outer: int
    ) -> subprocess.Popen[str]:
        return start_text_program(
            command,
            environment=environment,
            pass_fds=(outer,),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,  # Ctrl-C reaches only the command, which ends this
            preexec_fn=die_with_parent,  # one prctl; no threads are running
        )

    def group(self) -> LabCgroups:
        """The cgroups of the lab, not created yet; the keeper removes those that are created."""
        return LabCgroups(
            self.mark,
            before_making=self._note_cgroup,
            before_enabling=lambda enabled: self._note("controller", enabled),
            delegate=self._start_scope if has_systemd() else None,
        )

    def _start_scope(self, unified: Path) -> Path:
        self._scope = DelegatedScope(self.mark, unified, lambda pid: self._note("process", pid))
        return self._scope.directory

    def limit_dirty(self, device: str, most_bytes: int) -> None:
        """Limit the unwritten data of a device of the lab until the sandbox ends."""
        self._note("dirty-limit", device)
        limit_dirty(device, most_bytes)

    def _note(self, kind: str, value: str | int) -> None:
        if self._keeper is not None:
            self._keeper.note(kind, value)

    def _note_cgroup(self, directory: Path) -> None:
        """Record a cgroup for the keeper and in the mark."""
        self._note("cgroup", str(directory))
        write_mark(self.directory, self.mark, cgroup=directory)

    def ask(self, operation: Operation[Q, A], request: Q) -> A:
        """The answer of the process inside; errors of that process are raised here."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise UndecidedError("the lab is not running")
        try:
            process.stdin.write(request_line(operation, request))
            process.stdin.flush()
        except BrokenPipeError:
            raise UndecidedError(f"the lab ended: {self._last_words()}") from None
        for line in process.stdout:
            reply = json.loads(line)
            if "progress" in reply:
                figures = reply.get("step")
                self._progress(Step(reply["progress"], **figures) if figures else reply["progress"])
            elif "error" in reply:
                status = int(reply["status"])
                raise _ERRORS.get(status, UndecidedError)(reply["error"], hint=reply["hint"])
            else:
                return msgspec.convert(reply["answer"], operation.answer)
        raise UndecidedError(f"the lab ended: {self._last_words()}")

    def _last_words(self) -> str:
        if self._process is None or self._process.stderr is None:
            return "no reason given"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WORDS_SECONDS)
        status = self._process.poll()
        self._process.kill()
        text = self._process.stderr.read().strip()
        if not text and status == -signal.SIGKILL:
            return "something killed it (short of memory?): see dmesg"
        return text.splitlines()[-1] if text else "no reason given"

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                if stream is not None:
                    try:
                        stream.close()
                    except BrokenPipeError:
                        continue
        if self._scope is not None:
            self._scope.close()
        if self._keeper is not None:
            self._keeper.finish()


def _base_directory() -> str:
    """The directory for disk images: TMPDIR, otherwise /var/tmp (on a disk, unlike many a /tmp)."""
    return os.environ.get("TMPDIR") or "/var/tmp"  # noqa: S108  # mkdir follows no link


_NEEDED = (
    "sys_admin", "chown", "dac_override", "kill", "net_admin", "net_bind_service", "setgid",
    "setpcap", "setuid", "sys_chroot",
)  # fmt: skip
"""The capabilities of root that the sandbox and its network use or leave to nginx.
Source: capability.h."""


class NamespaceRefusal(NamedTuple):
    """The reason why namespaces cannot be made, and the remedy."""

    message: str
    hint: str


def refuse_without_rights(status: str) -> None:
    """Check the capabilities of root, from its /proc/PID/status.

    Without CAP_SETPCAP the rest of root's rights could not be kept out of nginx's reach.
    Errors: MissingPermissionError that names the missing capabilities.
    """
    held = parse_capabilities(parse_status(status).get("CapEff", ""))
    missing = [] if isinstance(held, Missing) else [name for name in _NEEDED if name not in held]
    if missing:
        names = ", ".join(f"CAP_{name.upper()}" for name in missing)
        raise MissingPermissionError(
            f"root without the capability {names} cannot make the sandbox",
            hint="in a container add "
            + " ".join(f"--cap-add {name.upper()}" for name in missing)
            + " --security-opt apparmor=unconfined (docker run), in a systemd unit name it in "
            "CapabilityBoundingSet=, or run this as an ordinary user who may make user namespaces",
        )


def explain_refusal(error: str, *, is_root: bool) -> NamespaceRefusal | None:
    """The meaning of an error of unshare(1); None for other errors."""
    last = error.strip().rpartition("unshare: ")[2]
    if "unshare: " not in error:
        return None
    if "No space left on device" in last:
        return NamespaceRefusal(
            "this host has no namespace left",
            "see sysctl user.max_mnt_namespaces, user.max_net_namespaces and the like",
        )
    if not is_root:
        return NamespaceRefusal(
            f"cannot make namespaces as an ordinary user: {last}",
            "run it with sudo, or allow unprivileged user namespaces (sysctl "
            "user.max_user_namespaces, kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns)",
        )
    if last.strip() == "cannot change root filesystem propagation: Invalid argument":
        return NamespaceRefusal(
            "cannot make a mount namespace in this chroot: its root directory is not a mount point",
            "run this outside the chroot, or bind-mount its directory on itself and enter it with "
            "pivot_root, as systemd-nspawn does",
        )
    return NamespaceRefusal(
        f"root may not make namespaces and mounts here ({last}): a container's filter of system "
        "calls, RestrictNamespaces= or SystemCallFilter= of a systemd unit, AppArmor or SELinux",
        "run this on the host, or give the container --security-opt seccomp=unconfined "
        "--security-opt apparmor=unconfined, or the unit RestrictNamespaces=no and "
        "SystemCallFilter=@mount",
    )


_RUNS_SYSTEMD = Path("/run/systemd/system")
"""A directory that exists if systemd runs: sd_booted(3)."""
_HOLDER = "holder"
_PATIENCE_SECONDS = 10.0


def has_systemd() -> bool:
    """True if systemd runs this machine and ``systemd-run`` is installed."""
    if not _RUNS_SYSTEMD.is_dir():
        return False
    try:
        find_program("systemd-run")
    except ProgramError:
        return False
    return True


class DelegatedScope:
    """A delegated scope, which a process holds until ``close``.

    ``note_process`` gets the id of that process, so that it can be cleaned up.
    Errors: UndecidedError with systemd's message, MissingPermissionError if the directory is not
            writable.
    """

    def __init__(self, mark: str, unified: Path, note_process: Callable[[int], None]) -> None:
        unit = f"nginx-tune-{mark}.scope"
        self._holder = start_text_program(
            ["systemd-run", "--scope", "--quiet", "--collect",
             f"--unit={unit}", "--property=Delegate=yes", "--", "sleep", "infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent,  # one prctl; no threads are running
        )  # fmt: skip
        note_process(self._holder.pid)
        try:
            self.directory = _await_scope(self._holder, unit, unified)
            (self.directory / _HOLDER).mkdir()
            (self.directory / _HOLDER / "cgroup.procs").write_text(str(self._holder.pid))
        except OSError as error:
            self.close()
            raise MissingPermissionError(
                f"{unit}: {error.strerror}", hint="run as root, which may create the scope"
            ) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process that holds the scope."""
        self._holder.kill()
        self._holder.communicate()


def _await_scope(holder: subprocess.Popen[str], unit: str, unified: Path) -> Path:
    """Wait until systemd has moved the process into the scope, and return the scope's directory."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if holder.poll() is not None:
            reason = "" if holder.stderr is None else holder.stderr.read().strip()
            raise UndecidedError(f"systemd creates no scope: {reason or holder.returncode}")
        groups = Path(f"/proc/{holder.pid}/cgroup").read_text()
        for line in groups.splitlines():
            path = line.partition("::")[2]
            if line.startswith("0::") and path.endswith(unit):
                return unified / path.lstrip("/")
        time.sleep(0.02)
    raise UndecidedError(f"systemd did not start {unit} within {_PATIENCE_SECONDS:.0f} s")


def bound(group: LabCgroups, sandbox: Sandbox, *, is_brief: bool = False) -> list[SandboxPart]:
    """Limit root's nginx, and return the parts of the sandbox that are left out.

    ``is_brief`` is for runs of less than a minute, which may leave out any of these parts.
    Errors: UndecidedError for an impossible part that the user did not give up.
    """
    if not sandbox.root:
        return []
    most = ResourceLimits().processes
    lacking: dict[SandboxPart, str] = {}
    why = _attempt(lambda: group.limit_processes(most))
    if why and not can_limit_numbers(most):
        lacking["processes"] = f"the number of nginx processes cannot be limited: {why}"
    why = _attempt(lambda: group.limit_memory(sandbox_bytes()))
    if why:
        lacking["memory"] = f"nginx's total memory cannot be limited: {why}"
    for part, message in lacking.items():
        if not is_brief and part not in given_up():
            _refuse(part, message)
    return sorted(lacking)


def _attempt(call: Callable[[], object]) -> str:
    try:
        call()
    except NginxTuneError as error:
        return error.message
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _refuse(part: SandboxPart, message: str) -> NoReturn:
    raise UndecidedError(
        message,
        hint="make cgroups writable for root (in a container: in a cgroup namespace of its own, "
        f"mounted rw), or run this as an ordinary user; --weaker-sandbox {part} does without",
    )
