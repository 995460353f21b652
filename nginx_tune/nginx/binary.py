"""The nginx program: which one, what it is and how it was built."""

from __future__ import annotations

import posixpath

from msgspec.structs import replace

from nginx_tune.documents.facts import Nginx, Running
from nginx_tune.errors import UsageError
from nginx_tune.host.door import Host, HostReadError
from nginx_tune.host.gaps import Gaps, Missing, attempt, known, under
from nginx_tune.host.nginx_names import NAMES
from nginx_tune.host.parse_nginx import (
    Build,
    libc_of,
    parse_build,
    parse_libc,
    parse_start_options,
)
from nginx_tune.nginx.processes import (
    Master,
    find_masters,
    is_trusted,
    read_instance,
    read_mapped_files,
    read_running,
    same_mounts,
)


def read_build(host: Host, binary: str) -> Build:
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
    host: Host, *, binary: str | None = None, pid: int | None = None
) -> tuple[Nginx, Gaps]:
    """The nginx program and its running master.

    The program is the named one, else the one that runs (first those that are in no container),
    else the one found on PATH or in an sbin directory.

    Errors: UsageError for a named binary that is no nginx and for a pid that is no master.
    """
    gaps: Gaps = {}
    masters = find_masters(host)
    if pid is not None and pid not in {master.pid for master in masters}:
        raise UsageError(f"process {pid} is no nginx master that can be seen")
    master = _chosen(host, masters, pid)
    path, build = _find_build(host, binary, master)
    running: Running | None = None
    if master is None:
        gaps["/running"] = "no nginx master process is running"
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
        binary=known(path, gaps, "/binary"),
        libc=known(libc, gaps, "/libc"),
        libc_version=known(libc_version, gaps, "/libc_version"),
        running=running,
        instances=instances,
    )
    if isinstance(build, Missing):
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


def _chosen(host: Host, masters: list[Master], pid: int | None) -> Master | None:
    """The master with that pid; without one the first that is in no container, else the first."""
    if pid is not None:
        return next(master for master in masters if master.pid == pid)
    ours = (master for master in masters if same_mounts(host, master.pid) is True)
    return next(ours, masters[0] if masters else None)


def _find_build(
    host: Host, binary: str | None, master: Master | None
) -> tuple[str | Missing, Build | Missing]:
    if binary is not None:
        build = read_build(host, binary)
        path = attempt(host.find_program, binary)
        return (binary if isinstance(path, Missing) else path), build
    if master is not None and not isinstance(master.binary, Missing):
        running = _build_of(host, master)
        # What the host itself has installed says nothing about an nginx in a container.
        if not isinstance(running, Missing) or same_mounts(host, master.pid) is not True:
            return master.binary, running
    for name in NAMES:
        found = attempt(host.find_program, name)
        if isinstance(found, Missing):
            continue
        said = attempt(host.run, [found, "-V"])
        if isinstance(said, Missing):
            return found, said
        return found, parse_build(said.stderr + "\n" + said.stdout)
    missing = Missing("no nginx on PATH or in an sbin directory; name it with --nginx")
    return missing, missing


def _build_of(host: Host, master: Master) -> Build | Missing:
    """What the program of a master says; one that must not be run is only read."""
    path = f"/proc/{master.pid}/exe"
    if is_trusted(host, master):
        # The link runs the very file the master runs, even when an upgrade replaced it.
        said = attempt(host.run, [path, "-V"])
        return said if isinstance(said, Missing) else parse_build(said.stderr + "\n" + said.stdout)
    texts = attempt(host.version_texts, path)
    build = texts if isinstance(texts, Missing) else parse_build(texts)
    if isinstance(build, Missing):
        return Missing(f"the program of process {master.pid} tells no version: {build.reason}")
    return build._replace(openssl=Missing("the program was read, not run"))


def _with_paths(running: Running, master: Master, build: Build | Missing, gaps: Gaps) -> Running:
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
    return replace(running, conf_path=conf_path, prefix=prefix)
