"""The walls: mount, process, network and IPC namespaces whose first process takes all with it.

``unshare --kill-child`` ends the first process inside when ``unshare`` ends, and ``unshare``
itself asks for SIGKILL at its parent's death, so kill -9 of the command leaves no process, no
mount and no loop device; the keeper does what namespaces cannot (cgroups, files).

As an ordinary user the walls are made in a user namespace that keeps the user's own id: nginx
then changes no user, and there are no cgroups and no loop devices.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

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
from nginx_tune.host.global_ids import OUTER_PROC_VARIABLE, is_initial_namespace
from nginx_tune.host.programs import ProgramError, find_program, own_module, start_text_program
from nginx_tune.nginx.lab.cgroups import LabCgroups
from nginx_tune.nginx.lab.dirty import limit_dirty
from nginx_tune.nginx.lab.keeper import Keeper
from nginx_tune.nginx.lab.leftovers import make_directory, sweep, write_mark
from nginx_tune.nginx.lab.lifetime import ENVIRONMENT_MARK, die_with_parent, new_mark
from nginx_tune.nginx.lab.namespace_refusals import explain_refusal
from nginx_tune.nginx.lab.operation import HELLO, A, Hello, Operation, Q, request_line
from nginx_tune.nginx.lab.scope import DelegatedScope, has_systemd
from nginx_tune.sandbox.spec import Wall

if TYPE_CHECKING:
    from typing_extensions import Self

_LAST_WORDS_SECONDS = 1.0
"""For a process to end whose answers have ended."""
_ERRORS: dict[int, type[NginxTuneError]] = {
    ExitStatus.USAGE: UsageError,
    ExitStatus.CONFIGURATION: ConfigurationError,
    ExitStatus.UNDECIDED: UndecidedError,
}


def unshare_command(*, root: bool) -> list[str]:
    """The command that makes the walls around what follows it."""
    command = ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork"]
    command += ["--kill-child=SIGKILL", "--mount-proc"]
    if not root:
        command += ["--user", "--map-current-user", "--keep-caps"]
    return [*command, "--"]


_given_up: list[Wall] = []


def give_up(walls: Iterable[Wall]) -> None:
    """Take the user's word (``--weaker-walls``) for walls that this host need not have."""
    _given_up[:] = sorted(set(walls))


def given_up() -> list[Wall]:
    """The walls that the user gave up, wherever this host cannot have them."""
    return list(_given_up)


class Walls:
    """A process inside the walls that answers requests, one JSON line each.

    Use as a context manager: leaving it, by whatever way, ends all inside and cleans up.
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
        # Inside, processes have other ids; the kernel's events name those of this /proc.
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
            status = Path("/proc/self/status").read_text(errors="replace")
            refusal = explain_refusal(error.message, is_root=self.root, status=status)
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
            start_new_session=True,  # Ctrl-C is for the command alone; it then ends this
            preexec_fn=die_with_parent,  # one prctl; no threads are running
        )

    def group(self) -> LabCgroups:
        """The lab's cgroups, none made yet; the keeper removes those that are."""
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
        """Have writers to a device of the lab wait for it (``dirty``), until the walls go."""
        self._note("dirty-limit", device)
        limit_dirty(device, most_bytes)

    def _note(self, kind: str, value: str | int) -> None:
        if self._keeper is not None:
            self._keeper.note(kind, value)

    def _note_cgroup(self, directory: Path) -> None:
        """Have the keeper remove a cgroup at the end."""
        self._note("cgroup", str(directory))
        write_mark(self.directory, self.mark, cgroup=directory)

    def ask(self, operation: Operation[Q, A], request: Q) -> A:
        """The answer of the process inside; its error is raised here as it was raised there."""
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
    """Where disk images go: TMPDIR when set, else /var/tmp (on a disk, unlike many a /tmp)."""
    return os.environ.get("TMPDIR") or "/var/tmp"  # noqa: S108  # mkdir follows no link
