"""The start of other programs: which file runs, and with which environment.

As root, only programs that no other user could write are started (see ``trust``). Names are looked
up in the system's directories, never in the caller's PATH or the working directory, and only
harmless variables are inherited. An ordinary user keeps PATH and environment, since they
give no further rights.

This file is part of the collector: standard library, Python 3.6.
"""

import os
import posixpath
import re
import subprocess
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set

from nginx_tune.host.trust import acts_as_root, distrust, distrust_opened, distrust_process

DIRECTORIES = (
    "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin",
    "/run/current-system/sw/bin",
)  # fmt: skip
"""Directories of system programs."""
NGINX_DIRECTORIES = (
    "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/nginx/sbin", "/opt/nginx/sbin",
    "/usr/local/openresty/nginx/sbin", "/usr/local/openresty/bin",
)  # fmt: skip
"""Further directories in which nginx is installed."""
_KEPT = re.compile(r"HOME|USER|LOGNAME|TERM|TMPDIR|LANG|LC_\w+|XDG_\w+_HOME|NGINX_TUNE_\w+|COLUMNS")
_TIME_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
_OF_PROCESS = re.compile(r"/proc/([0-9]+)/exe")
_INHERITED = ("NGINX", "NGINX_VAR")
"""Variables from which nginx would take the sockets of a binary upgrade."""
_AS_MODULE = (
    "import runpy, sys; sys.path[:] = {!r}; del sys.argv[0]; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


class ProgramError(OSError):
    """The error for a program that is missing or must not be run."""


class RefusedProgramError(ProgramError):
    """The error for a program that root must not run; ``why`` is the reason."""

    def __init__(self, why: str) -> None:
        super().__init__("refusing to run this program as root: " + why)
        self.why = why


_vouched: Set[str] = set()


def vouch_for(path: str) -> None:
    """Trust a program on the operator's word (``--trust``), whoever may write it."""
    _vouched.add(posixpath.abspath(path))


def is_vouched_for(path: str) -> bool:
    """True for a program that the operator vouched for."""
    return posixpath.abspath(path) in _vouched


def find_program(name: str) -> str:
    """The absolute path of a program, given by path or name.

    Errors: ProgramError if no such program may be run.
    """
    if "/" in name:
        path = os.path.abspath(name)  # noqa: PTH100  # links stay, since the name is run
        if not os.path.isfile(path):  # noqa: PTH113
            raise ProgramError("No such file")
        if not os.access(path, os.X_OK, effective_ids=True):
            raise ProgramError("not executable")
        check_program(path)
        return path
    refused = ""
    for place in search_path():
        candidate = posixpath.join(place, name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK, effective_ids=True):  # noqa: PTH113
            why = why_not_run(candidate)
            if not why:
                return candidate
            refused = refused or why
    if refused:
        raise RefusedProgramError(refused)
    where = "in a system directory" if acts_as_root() else "on PATH or in an sbin directory"
    raise ProgramError("not found " + where)


def search_path() -> List[str]:
    """The directories in which programs are searched for, in order."""
    places = list(DIRECTORIES + NGINX_DIRECTORIES)
    if not acts_as_root():
        places = os.environ.get("PATH", "").split(":") + places
    return [place for place in dict.fromkeys(places) if posixpath.isabs(place)]


def why_not_run(path: str) -> str:
    """The reason why this process must not run a program; empty if it may."""
    return why_distrusted(path) if acts_as_root() else ""


def why_distrusted(path: str) -> str:
    """The reason why an untrusted user could write a program.

    Empty if none could, or if the operator vouched for the program.
    """
    if is_vouched_for(path):
        return ""
    process = _OF_PROCESS.fullmatch(path)
    return distrust_process(int(process.group(1))) if process else distrust(path)


def check_program(path: str) -> None:
    """Check that a program may be run. Errors: ProgramError with the reason."""
    why = why_not_run(path)
    if why:
        raise RefusedProgramError(why)


def clean_environment(extra: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """The variables that a program inherits, and ``extra``."""
    if not acts_as_root():
        kept = {key: value for key, value in os.environ.items() if key not in _INHERITED}
        kept["PATH"] = ":".join(search_path())
    else:
        kept = {key: value for key, value in os.environ.items() if _KEPT.fullmatch(key)}
        if _TIME_ZONE.fullmatch(os.environ.get("TZ", "")):
            kept["TZ"] = os.environ["TZ"]
        kept["PATH"] = ":".join(DIRECTORIES)
    kept.update(extra or {})
    return kept


def own_module(module: str, *arguments: str) -> List[str]:
    """The command that runs a module of this very installation.

    ``python -m`` would prefer files in the working directory.
    """
    places = [place for place in sys.path if posixpath.isabs(place)]
    code = _AS_MODULE.format(places)
    return [sys.executable, "-I", "-B", "-c", code, module] + list(arguments)  # noqa: RUF005


def start_program(
    argv: Sequence[Any],
    *,
    is_checked: bool = False,
    environment: Optional[Mapping[str, str]] = None,
    inherits: bool = True,
    **options: Any,
) -> "subprocess.Popen[bytes]":
    """Start a program without a shell, with streams of bytes.

    ``environment`` is added to the inherited variables (none without ``inherits``). ``is_checked``
    is for a part of this installation, or a program that was checked before the sandbox was
    entered.

    Errors: OSError, with ProgramError for a program that is missing or must not be run.
    """
    words = [argv[0] if isinstance(argv[0], str) else os.fspath(argv[0]), *list(argv[1:])]
    held = -1
    if not is_checked:
        words[0] = find_program(words[0])
        held = _hold(words[0])
    if inherits:
        variables = clean_environment(environment)
    else:
        variables = {"PATH": ":".join(DIRECTORIES), **(environment or {})}
    if held < 0:
        return subprocess.Popen(words, env=variables, **options)
    try:
        options["pass_fds"] = (*options.get("pass_fds", ()), held)
        file = "/proc/self/fd/{}".format(held)
        return subprocess.Popen(words, executable=file, env=variables, **options)
    finally:
        os.close(held)


def _hold(path: str) -> int:
    """A checked descriptor of the file behind ``/proc/PID/exe``; -1 for any other path.

    A second lookup of the path could find another process with the same pid.
    """
    if not _OF_PROCESS.fullmatch(path):
        return -1
    held = os.open(path, os.O_PATH | os.O_CLOEXEC)
    why = distrust_opened("/proc/self/fd/{}".format(held)) if acts_as_root() else ""
    if why:
        os.close(held)
        raise RefusedProgramError(why)
    return held


def start_text_program(argv: Sequence[Any], **options: Any) -> "subprocess.Popen[str]":
    """``start_program`` with text streams in UTF-8; other bytes are replaced."""
    started: Any = start_program(argv, encoding="utf-8", errors="replace", **options)
    return started  # type: ignore[no-any-return]  # the streams are as asked


def run_program(argv: Sequence[Any], **options: Any) -> "subprocess.CompletedProcess[bytes]":
    """Run a program to its end; returns its output and status.

    Errors: as for ``start_program``.
    """
    options.setdefault("stderr", subprocess.PIPE)
    process = start_program(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
    try:
        out, err = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)
