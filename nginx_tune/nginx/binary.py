"""The nginx program: its choice, its build, and the differences between two builds."""

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec.structs import replace

from nginx_tune.documents.facts import IN_CONTAINER, Nginx, NginxCandidate, Running
from nginx_tune.errors import MissingToolError, UndecidedError, UsageError
from nginx_tune.host.door import Gaps, Host, HostReadError, Missing, attempt, known, under
from nginx_tune.host.parse_elf import parse_elf
from nginx_tune.host.parse_nginx import (
    NAMES,
    VersionOutput,
    global_directives,
    libc_of,
    parse_build,
    parse_libc,
    parse_start_options,
)
from nginx_tune.host.parse_proc import parse_status
from nginx_tune.nginx.processes import (
    Master,
    find_host_masters,
    read_instance,
    read_mapped_files,
    read_running,
    same_mounts,
)

FoundBy = Literal["named", "running", "installed"]
_READING = (True, None, False)
"""The order of preference of masters: first the masters that read the given configuration."""


class Eligibility(NamedTuple):
    """A running master, and whether it may be chosen and its program run."""

    master: Master
    user: str | None
    """The user id of the process; None if it has several ids or they cannot be read."""
    refused: str
    """The reason why only ``--pid`` may choose the process; empty if nothing prevents the
    choice."""
    may_run: bool
    """True if its program is visible here and only root can write it."""
    reads: bool | None = None
    """True if its command line names the given configuration; None if it names none."""


class Choice(NamedTuple):
    """The chosen nginx."""

    source: FoundBy | None
    """The way in which nginx was found; None if no nginx was found."""
    program: str | Missing
    """The program to run: a path, or ``/proc/PID/exe`` for the file that a master runs."""
    binary: str | Missing
    """The path of the program."""
    master: Master | None
    may_run: bool
    candidates: list[NginxCandidate]


def choose_nginx(
    host: Host,
    masters: Sequence[Master],
    *,
    binary: str | None = None,
    pid: int | None = None,
    conf_path: str | None = None,
    to_run: bool = False,
) -> Choice:
    """The named program, otherwise the running one, otherwise the installed one.

    The master is the one with ``pid``, whoever owns it. Without a pid it is the first allowed one
    in this order: those that run the named program, those whose command line names ``conf_path``,
    and last those in a container, if no nginx is installed for ``conf_path``. ``to_run`` allows
    only programs that may be run.
    Errors: UsageError for a pid that is not an nginx master.
    """
    standings = [
        _eligibility(host, master)._replace(reads=_reads(host, master, conf_path))
        for master in masters
    ]
    chosen = _chosen(standings, binary, pid)
    if chosen is not None and not chosen.may_run:
        has_other = binary is not None or any(found.chosen for found in _installed(host, None))
        if to_run or (conf_path is not None and pid is None and has_other):
            chosen = None
    if binary is not None:
        found = attempt(host.find_program, binary)
        named = NginxCandidate(
            binary=binary, source="named", chosen=True, reason="--nginx names it"
        )
        return Choice(
            "named",
            binary,
            binary if isinstance(found, Missing) else found,
            None if chosen is None else chosen.master,
            True,
            [named, *_running(standings, chosen, is_program=False)],
        )
    if chosen is not None and not isinstance(chosen.master.binary, Missing):
        return Choice(
            "running",
            f"/proc/{chosen.master.pid}/exe",
            chosen.master.binary,
            chosen.master,
            chosen.may_run,
            [*_running(standings, chosen, is_program=True), *_installed(host, chosen)],
        )
    installed = _installed(host, None)
    first = next((found for found in installed if found.chosen), None)
    missing = Missing("no nginx in a system directory; name it with --nginx")
    return Choice(
        None if first is None else "installed",
        missing if first is None else first.binary,
        missing if first is None else first.binary,
        None if chosen is None else chosen.master,
        True,
        [*_running(standings, chosen, is_program=False), *installed],
    )


def _eligibility(host: Host, master: Master) -> Eligibility:
    user = _user(host, str(master.pid))
    is_here = same_mounts(host, master.pid) is True
    if isinstance(master.binary, Missing):
        return Eligibility(
            master, user, f"its program cannot be seen: {master.binary.reason}", False
        )
    if user is None:
        return Eligibility(master, user, "its user cannot be read", False)
    allowed = {"0", _user(host, "self"), _caller(host)}
    if user not in allowed:
        return Eligibility(
            master, user, f"it runs as user {user}, who is neither root nor the caller", False
        )
    if not is_here:  # a program in a container is only read, never run
        return Eligibility(master, user, "", False)
    why = attempt(host.distrust, f"/proc/{master.pid}/exe")
    reason = why.reason if isinstance(why, Missing) else why
    return Eligibility(master, user, reason, not reason)


def _user(host: Host, process: str) -> str | None:
    """The user of a process, if its real, effective, saved and file-system ids are the same."""
    status = attempt(host.read_text, f"/proc/{process}/status")
    words = [] if isinstance(status, Missing) else parse_status(status).get("Uid", "").split()
    return words[0] if len(set(words)) == 1 else None


def _caller(host: Host) -> str | None:
    caller = attempt(host.caller)
    return None if isinstance(caller, Missing) else str(caller)


def _chosen(
    standings: Sequence[Eligibility], binary: str | None, pid: int | None
) -> Eligibility | None:
    if pid is not None:
        named = next((candidate for candidate in standings if candidate.master.pid == pid), None)
        if named is None:
            raise UsageError(f"process {pid} is not a visible nginx master")
        return named
    taken = [candidate for candidate in standings if not candidate.refused]
    order = sorted(
        taken,
        key=lambda candidate: (
            not candidate.may_run,
            candidate.master.binary != binary,
            _READING.index(candidate.reads),
            candidate.user != "0",
        ),
    )
    return order[0] if order else None


def _reads(host: Host, master: Master, conf_path: str | None) -> bool | None:
    options = parse_start_options(master.arguments)
    if conf_path is None or options.conf_path is None or same_mounts(host, master.pid) is not True:
        return None
    own = posixpath.join(options.prefix or "", options.conf_path)
    if not posixpath.isabs(own):
        return None
    return (_real(host, own) or own) == (_real(host, conf_path) or conf_path)


def _running(
    standings: Sequence[Eligibility], chosen: Eligibility | None, *, is_program: bool
) -> list[NginxCandidate]:
    """The masters as candidates.

    ``is_program``: true if the chosen nginx is the chosen master's program.
    """
    return [
        NginxCandidate(
            binary="" if isinstance(candidate.master.binary, Missing) else candidate.master.binary,
            source="running",
            pid=candidate.master.pid,
            chosen=candidate is chosen and is_program,
            reason=_why(candidate, is_chosen=candidate is chosen),
        )
        for candidate in standings
    ]


def _why(candidate: Eligibility, *, is_chosen: bool) -> str:
    if not is_chosen:
        reason = "another nginx was chosen" if candidate.may_run else f"it runs {IN_CONTAINER}"
        return candidate.refused or reason
    if candidate.refused:
        return f"--pid names it, but its program is only read: {candidate.refused}"
    does = "it reads this configuration" if candidate.reads else "it runs"
    return does if candidate.may_run else f"{does} {IN_CONTAINER}: its program is only read"


def _installed(host: Host, chosen: Eligibility | None) -> list[NginxCandidate]:
    """The installed programs, except the one that the chosen master runs."""
    found: list[NginxCandidate] = []
    known = set() if chosen is None else {chosen.master.binary, _real(host, chosen.master.binary)}
    for name in NAMES:
        try:
            path = host.find_program(name)
        except HostReadError as error:
            if error.refused:
                why = error.refused
                found.append(NginxCandidate(binary=name, source="installed", reason=why))
            continue
        if path in known or _real(host, path) in known:
            continue
        known |= {path, _real(host, path)}
        is_first = chosen is None and not any(earlier.chosen for earlier in found)
        reason = "it is installed" if is_first else "another nginx was chosen"
        found.append(
            NginxCandidate(binary=path, source="installed", chosen=is_first, reason=reason)
        )
    return found


def _real(host: Host, path: str | Missing) -> str:
    real = path if isinstance(path, Missing) else attempt(host.real_path, path)
    return "" if isinstance(real, Missing) else real


def _choice_sentence(candidates: Sequence[NginxCandidate]) -> str:
    """The chosen program with the reason, in a sentence; empty if none was chosen."""
    chosen = next((found for found in candidates if found.chosen), None)
    if chosen is None:
        return ""
    of = f" of process {chosen.pid}" if chosen.pid else ""
    return f"nginx is {chosen.binary}{of}: {chosen.reason}"


def runnable_program(nginx: Nginx) -> str:
    """The program of the chosen nginx.

    Errors: MissingToolError if there is none, UndecidedError if it may only be read; each says
            why another program was not chosen.
    """
    if nginx.binary is not None and nginx.may_run:
        return nginx.binary
    chosen = next((found for found in nginx.candidates if found.chosen), None)
    if chosen is not None:
        raise UndecidedError(
            f"{chosen.binary} may not be run: {chosen.reason}", hint="name one with --nginx"
        )
    refused = next((f"{found.binary}: {found.reason}" for found in nginx.candidates), "")
    raise MissingToolError(
        f"no nginx found here may be run: {refused}" if refused else "nginx is not installed",
        hint="apt-get install nginx, or name one with --nginx",
    )


_ENVIRONMENT = re.compile(r"(\benv\s+\w+)=[^;]*")
"""Settings of environment variables, whose values may be secrets."""


def read_build(host: Host, binary: str) -> VersionOutput:
    """The build that ``BINARY -V`` reports.

    Errors: UsageError for a missing program or one that is not nginx, since the caller named it.
    """
    try:
        answer = host.run([binary, "-V"])
    except HostReadError as error:
        raise UsageError(f"{binary}: cannot run nginx: {error.reason}") from None
    build = parse_build(answer.stderr + "\n" + answer.stdout)
    if isinstance(build, Missing):
        raise UsageError(f"{binary}: not nginx: {build.reason}", hint="give the nginx executable")
    return build


def read_nginx(
    host: Host,
    *,
    binary: str | None = None,
    pid: int | None = None,
    conf_path: str | None = None,
    to_run: bool = False,
) -> tuple[Nginx, Gaps]:
    """The nginx program and its running master, as chosen by ``choose_nginx``, and all candidates.

    ``conf_path`` is the full path of the configuration that a command is about. ``to_run`` is for
    a caller that starts the program: it excludes an nginx in a container.

    Errors: UsageError for a named binary that is not nginx, or a pid that is not a master.
    """
    gaps: Gaps = {}
    masters = find_host_masters(host, pid=pid)
    choice = choose_nginx(host, masters, binary=binary, pid=pid, conf_path=conf_path, to_run=to_run)
    master, build = choice.master, _build_of(host, choice)
    running: Running | None = None
    if master is None:
        gaps["/running"] = _why_none_runs(choice)
    else:
        running, running_gaps = read_running(host, master, masters)
        gaps |= {f"/running{pointer}": reason for pointer, reason in running_gaps.items()}
        running = _with_paths(running, master, build, gaps)
    instances = []
    for index, each in enumerate(masters):
        instance, found = read_instance(host, each)
        instances.append(instance)
        gaps |= under(f"/instances/{index}", found)
    libc, libc_version = _read_libc(host, master)
    nginx = Nginx(
        binary=known(choice.binary, gaps, "/binary"),
        libc=known(libc, gaps, "/libc"),
        libc_version=known(libc_version, gaps, "/libc_version"),
        running=running,
        instances=instances,
        choice=_choice_sentence(choice.candidates),
        candidates=choice.candidates,
        may_run=choice.may_run,
    )
    if isinstance(build, Missing):
        candidates = [
            replace(found, reason=f"{found.reason}; {build.reason}") if found.chosen else found
            for found in choice.candidates
        ]
        nginx = replace(nginx, candidates=candidates, choice=_choice_sentence(candidates))
        fields = "product version nginx_version conf_path prefix error_log_path pid_path openssl"
        gaps |= {f"/{name}": build.reason for name in (*fields.split(), "openssl_built")}
        return nginx, gaps
    nginx = replace(
        nginx,
        product=build.product,
        version=build.version,
        nginx_version=known(build.nginx_version, gaps, "/nginx_version"),
        flags=build.flags,
        conf_path=build.conf_path,
        prefix=build.prefix,
        error_log_path=build.error_log_path,
        pid_path=build.pid_path,
        openssl=known(build.openssl, gaps, "/openssl"),
        openssl_built=known(build.openssl_built, gaps, "/openssl_built"),
    )
    return nginx, gaps


def _why_none_runs(choice: Choice) -> str:
    running = [found for found in choice.candidates if found.source == "running"]
    if not running:
        return "no nginx master process is running"
    return f"process {running[0].pid} is not used: {running[0].reason} (--pid looks at it)"


def _read_libc(host: Host, master: Master | None) -> tuple[str | Missing, str | Missing]:
    """The C library of the running nginx, or else of the host, and its version.

    The version is known only for the host's library, not for one in a container.
    """
    answer = attempt(host.run, ["ldd", "--version"])
    own = answer if isinstance(answer, Missing) else parse_libc(answer.stdout + answer.stderr)
    if master is not None and same_mounts(host, master.pid) is not True:
        mapped = read_mapped_files(host, master.pid)
        libc = mapped if isinstance(mapped, Missing) else libc_of(mapped)
        return libc, Missing("nginx is in another mount namespace")
    return (own, own) if isinstance(own, Missing) else own


def _build_of(host: Host, choice: Choice) -> VersionOutput | Missing:
    """The build that the chosen program reports; a program that must not be run is only read."""
    if isinstance(choice.program, Missing):
        return choice.program
    if choice.source == "named":
        return read_build(host, choice.program)
    if choice.may_run:
        answer = attempt(host.run, [choice.program, "-V"])
        if isinstance(answer, Missing):
            return answer
        return parse_build(answer.stderr + "\n" + answer.stdout)
    texts = attempt(host.version_texts, choice.program)
    build = texts if isinstance(texts, Missing) else parse_build(texts)
    if isinstance(build, Missing):
        of = f"the program of process {choice.master.pid}" if choice.master else choice.program
        return Missing(f"{of} contains no version: {build.reason}")
    return build._replace(openssl=Missing("the program was read, not run"))


def _with_paths(
    running: Running, master: Master, build: VersionOutput | Missing, gaps: Gaps
) -> Running:
    """The running nginx with its configuration and prefix, from its command line or its build."""
    options = parse_start_options(master.arguments)
    prefix = options.prefix or (None if isinstance(build, Missing) else build.prefix)
    conf_path = options.conf_path or (None if isinstance(build, Missing) else build.conf_path)
    if conf_path is not None and prefix is not None:
        conf_path = posixpath.join(prefix, conf_path)
    reason = "not on the command line, and the build is not known"
    if prefix is None:
        gaps["/running/prefix"] = reason
    if conf_path is None:
        gaps["/running/conf_path"] = reason
    given = _ENVIRONMENT.sub(r"\1", global_directives(master.arguments))
    return replace(running, conf_path=conf_path, prefix=prefix, given=given)


_PATHS = ("-path=", "--prefix=", "--user=", "--group=", "--build=")
"""Options for paths and names, which have no effect on requests."""


class LinkedBuild(NamedTuple):
    """A build and the libraries that its program links to; None if they cannot be read."""

    nginx: Nginx
    libraries: list[str] | None

    @property
    def title(self) -> str:
        """The product and version."""
        return build_title(self.nginx)


def build_title(nginx: Nginx) -> str:
    """The product and version of a build."""
    return f"{nginx.product or 'nginx'} {nginx.version or '(version not known)'}"


def read_linked(host: Host, nginx: Nginx) -> LinkedBuild:
    """A build and its libraries, which show, for example, another allocator. Source: DT_NEEDED."""
    if nginx.binary is None:
        return LinkedBuild(nginx, None)
    try:
        data = host.read_bytes(nginx.binary, limit_bytes=256 << 20)
        elf = parse_elf(lambda at, size: data[at : at + size])
    except (HostReadError, ValueError):
        return LinkedBuild(nginx, None)
    return LinkedBuild(nginx, None if elf is None else sorted(elf.libraries))


def build_differences(baseline: LinkedBuild, candidate: LinkedBuild) -> list[str]:
    """A line for each difference, the programs first; none if both builds are the same file."""
    before, after = baseline.nginx, candidate.nginx
    if before.binary == after.binary:
        return []
    lines = [f"{baseline.title} ({before.binary}) → {candidate.title} ({after.binary})"]
    if (before.nginx_version, after.nginx_version) != (before.version, after.version):
        lines.append(f"on nginx {before.nginx_version} → {after.nginx_version}")
    if before.openssl != after.openssl:
        lines.append(f"TLS by {before.openssl or 'no library'} → {after.openssl or 'no library'}")
    lines += _sets("configured with", _options(before.flags), _options(after.flags))
    if baseline.libraries is not None and candidate.libraries is not None:
        lines += _sets("linked to", baseline.libraries, candidate.libraries)
    return lines


def _options(flags: Iterable[str]) -> list[str]:
    return [flag for flag in flags if not any(part in flag for part in _PATHS)]


def _sets(what: str, before: Iterable[str], after: Iterable[str]) -> Iterator[str]:
    old, new = dict.fromkeys(before), dict.fromkeys(after)
    gone = [item for item in old if item not in new]
    come = [item for item in new if item not in old]
    if gone:
        yield f"no longer {what} {' '.join(gone)}"
    if come:
        yield f"now {what} {' '.join(come)}"


def find_series(series: str) -> Path | None:
    """The program of a series such as ``1.18`` in the matrix; None if it is not unpacked."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    program = Path(base) / "nginx-tune" / "matrix" / series / "nginx"
    return program if os.access(program, os.X_OK, effective_ids=True) else None
