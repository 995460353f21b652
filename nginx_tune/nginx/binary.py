"""The nginx program: which one, what it is, how it was built, and how two builds differ."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from nginx_tune.documents.facts import Nginx, Running
from nginx_tune.errors import UsageError
from nginx_tune.host.door import Gaps, Host, HostReadError, Missing, attempt, known, under
from nginx_tune.host.parse_elf import parse_elf
from nginx_tune.host.parse_nginx import (
    VersionOutput,
    global_directives,
    libc_of,
    parse_build,
    parse_libc,
    parse_start_options,
)
from nginx_tune.nginx.choice import Choice, choice_sentence, choose_nginx
from nginx_tune.nginx.processes import (
    Master,
    find_host_masters,
    read_instance,
    read_mapped_files,
    read_running,
    same_mounts,
)


def read_build(host: Host, binary: str) -> VersionOutput:
    """What ``BINARY -V`` says.

    Errors: UsageError when there is no such program or it is no nginx: the caller named it.
    """
    try:
        said = host.run([binary, "-V"])
    except HostReadError as error:
        raise UsageError(f"{binary}: cannot run nginx: {error.reason}") from None
    build = parse_build(said.stderr + "\n" + said.stdout)
    if isinstance(build, Missing):
        raise UsageError(f"{binary}: no nginx: {build.reason}", hint="give the nginx executable")
    return build


def read_nginx(
    host: Host,
    *,
    binary: str | None = None,
    pid: int | None = None,
    conf_path: str | None = None,
    to_run: bool = False,
) -> tuple[Nginx, Gaps]:
    """The nginx program and its running master.

    Which one is meant is said in ``nginx/choice.py``; the others stand in ``candidates``.
    ``conf_path`` is the configuration that a command is about, in full.
    ``to_run`` is for a caller who starts it: one in a container is then not meant.

    Errors: UsageError for a named binary that is no nginx and for a pid that is no master.
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
    for index, one in enumerate(masters):
        instance, found = read_instance(host, one)
        instances.append(instance)
        gaps |= under(f"/instances/{index}", found)
    libc, libc_version = _read_libc(host, master)
    nginx = Nginx(
        binary=known(choice.binary, gaps, "/binary"),
        libc=known(libc, gaps, "/libc"),
        libc_version=known(libc_version, gaps, "/libc_version"),
        running=running,
        instances=instances,
        choice=choice_sentence(choice.candidates),
        candidates=choice.candidates,
        may_run=choice.may_run,
    )
    if isinstance(build, Missing):
        told = [
            replace(one, reason=f"{one.reason}; {build.reason}") if one.chosen else one
            for one in choice.candidates
        ]
        nginx = replace(nginx, candidates=told, choice=choice_sentence(told))
        fields = (
            "product",
            "version",
            "nginx_version",
            "conf_path",
            "prefix",
            "error_log_path",
            "pid_path",
            "openssl",
            "openssl_built",
        )
        gaps |= {f"/{name}": build.reason for name in fields}
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
    running = [one for one in choice.candidates if one.source == "running"]
    if not running:
        return "no nginx master process is running"
    return f"process {running[0].pid} is not taken: {running[0].reason} (--pid looks at it)"


def _read_libc(host: Host, master: Master | None) -> tuple[str | Missing, str | Missing]:
    """The C library of the nginx that runs, else of the host; and its version.

    Only the host's own tells a version, so that of an nginx in a container stays unknown.
    """
    said = attempt(host.run, ["ldd", "--version"])
    own = said if isinstance(said, Missing) else parse_libc(said.stdout + said.stderr)
    if master is not None and same_mounts(host, master.pid) is not True:
        mapped = read_mapped_files(host, master.pid)
        libc = mapped if isinstance(mapped, Missing) else libc_of(mapped)
        return libc, Missing("nginx lives in another mount namespace")
    return (own, own) if isinstance(own, Missing) else own


def _build_of(host: Host, choice: Choice) -> VersionOutput | Missing:
    """What the chosen program says of itself; one that must not be run is only read."""
    if isinstance(choice.program, Missing):
        return choice.program
    if choice.source == "named":
        return read_build(host, choice.program)
    if choice.may_run:
        said = attempt(host.run, [choice.program, "-V"])
        return said if isinstance(said, Missing) else parse_build(said.stderr + "\n" + said.stdout)
    texts = attempt(host.version_texts, choice.program)
    build = texts if isinstance(texts, Missing) else parse_build(texts)
    if isinstance(build, Missing):
        of = f"the program of process {choice.master.pid}" if choice.master else choice.program
        return Missing(f"{of} tells no version: {build.reason}")
    return build._replace(openssl=Missing("the program was read, not run"))


def _with_paths(
    running: Running, master: Master, build: VersionOutput | Missing, gaps: Gaps
) -> Running:
    """The configuration and prefix in use: from the command line, else as built."""
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


_ENVIRONMENT = re.compile(r"(\benv\s+\w+)=[^;]*")
"""A value may be a secret."""


_PATHS = ("-path=", "--prefix=", "--user=", "--group=", "--build=")
"""In options that say where things lie, which no request sees."""


class LinkedBuild(NamedTuple):
    """A build with the libraries that its program is linked to; null where they cannot be read."""

    nginx: Nginx
    libraries: list[str] | None

    @property
    def title(self) -> str:
        """Its product and version."""
        return build_title(self.nginx)


def build_title(nginx: Nginx) -> str:
    """The product and version of a build."""
    return f"{nginx.product or 'nginx'} {nginx.version or '(version not known)'}"


def read_linked(host: Host, nginx: Nginx) -> LinkedBuild:
    """A build and its libraries: another allocator shows there. Source: DT_NEEDED."""
    if nginx.binary is None:
        return LinkedBuild(nginx, None)
    try:
        data = host.read_bytes(nginx.binary, limit_bytes=256 << 20)
        elf = parse_elf(lambda at, size: data[at : at + size])
    except (HostReadError, ValueError):
        return LinkedBuild(nginx, None)
    return LinkedBuild(nginx, None if elf is None else sorted(elf.libraries))


def build_differences(baseline: LinkedBuild, candidate: LinkedBuild) -> list[str]:
    """Each difference as a line, the programs themselves first; none where both are one file."""
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
    gone = [one for one in old if one not in new]
    come = [one for one in new if one not in old]
    if gone:
        yield f"no longer {what} {' '.join(gone)}"
    if come:
        yield f"now {what} {' '.join(come)}"
