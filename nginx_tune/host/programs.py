"""The one place from which other programs are started: which file, and with what environment.

As root only what nobody but root could have written is started (see ``trust``): a name is looked
for in the system's directories, never in the caller's PATH or in the working directory, and of
the environment only what is known to be harmless goes along. An ordinary user has his own PATH
and environment: nobody gains anything by it.

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
"""Where system programs are."""
NGINX_DIRECTORIES = (
    "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/nginx/sbin", "/opt/nginx/sbin",
    "/usr/local/openresty/nginx/sbin", "/usr/local/openresty/bin",
)  # fmt: skip
"""Where else nginx is."""
_KEPT = re.compile(r"HOME|USER|LOGNAME|TERM|TMPDIR|LANG|LC_\w+|XDG_\w+_HOME|NGINX_TUNE_\w+|COLUMNS")
_TIME_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
_OF_PROCESS = re.compile(r"/proc/([0-9]+)/exe")
_INHERITED = ("NGINX", "NGINX_VAR")
"""nginx would take the sockets of a binary upgrade from them."""
_AS_MODULE = (
    "import runpy, sys; sys.path[:] = {!r}; del sys.argv[0]; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


class ProgramError(OSError):
    """A program that is not there, or that is not to be run."""


_vouched: Set[str] = set()


def vouch_for(path: str) -> None:
    """Take the operator's word (``--trust``) for a program, whoever may have written it."""
    _vouched.add(posixpath.abspath(path))


def is_vouched_for(path: str) -> bool:
    """Whether the operator gave his word for a program."""
    return posixpath.abspath(path) in _vouched


def find_program(name: str) -> str:
    """Absolute path of a program that may be run: a path, or a name found where programs are.

    Errors: ProgramError when there is none, or none that may be run.
    """
    if "/" in name:
        path = os.path.abspath(name)  # noqa: PTH100  # links stay: the name is what runs
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
        raise ProgramError("not run as root: " + refused)
    where = "in a system directory" if acts_as_root() else "on PATH or in an sbin directory"
    raise ProgramError("not found " + where)


def search_path() -> List[str]:
    """The directories that programs are looked for in, in order."""
    places = list(DIRECTORIES + NGINX_DIRECTORIES)
    if not acts_as_root():
        places = os.environ.get("PATH", "").split(":") + places
    return [place for place in dict.fromkeys(places) if posixpath.isabs(place)]


def why_not_run(path: str) -> str:
    """Why this process does not run a program; empty when it does."""
    return why_distrusted(path) if acts_as_root() else ""


def why_distrusted(path: str) -> str:
    """Why somebody else could have written a program; empty for one that is vouched for."""
    if is_vouched_for(path):
        return ""
    process = _OF_PROCESS.fullmatch(path)
    return distrust_process(int(process.group(1))) if process else distrust(path)


def check_program(path: str) -> None:
    """Errors: ProgramError for a program that root does not run."""
    why = why_not_run(path)
    if why:
        raise ProgramError("not run as root: " + why)


def clean_environment(extra: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """What a program is given of the environment, and ``extra``."""
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
    """The command that runs a module of this package, as this very installation.

    ``python -m`` would take what lies in the working directory for ours.
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
    """Start a program without a shell; streams are bytes.

    ``environment`` is given besides the cleaned one, or alone where nothing is inherited.
    ``is_checked`` is for what is a part of this installation, and for what was looked at before
    the sandbox was entered.

    Errors: OSError, ProgramError among them for one that is not there or not to be run.
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
    """A descriptor of the very file that a process runs, looked at; -1 for any other path.

    By its path it would be looked up again to be run, and by then the number could be another
    process's.
    """
    if not _OF_PROCESS.fullmatch(path):
        return -1
    held = os.open(path, os.O_PATH | os.O_CLOEXEC)
    why = distrust_opened("/proc/self/fd/{}".format(held)) if acts_as_root() else ""
    if why:
        os.close(held)
        raise ProgramError("not run as root: " + why)
    return held


def start_text_program(argv: Sequence[Any], **options: Any) -> "subprocess.Popen[str]":
    """``start_program`` with streams of text, in UTF-8, other bytes replaced."""
    started: Any = start_program(argv, encoding="utf-8", errors="replace", **options)
    return started  # type: ignore[no-any-return]  # the streams are as asked


def run_program(
    argv: Sequence[Any], *, stdin: bytes = b"", stdout: Any = subprocess.PIPE, **options: Any
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program to its end; what it said.

    Errors: as ``start_program``.
    """
    options.setdefault("stderr", subprocess.PIPE)
    process = start_program(argv, stdin=subprocess.PIPE, stdout=stdout, **options)
    try:
        out, err = process.communicate(stdin)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)
