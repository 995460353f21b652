"""``nginx -t`` on a tree with some files replaced, in the sandbox that keep nothing of it.

``nginx -t`` creates logs, pid files and directories, binds addresses, resolves names and runs the
code of modules. Inside the sandbox the file system is read-only but for memory, the only link is
``lo``, every address can be bound and every name of the configuration resolves, so what is judged
is the configuration, and nothing of the host is touched.

Variants may share paths: a configuration beside itself with a change planned. Every such file is
laid over once, by a copy whose bytes are those of the variant whose turn it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from nginx_tune.documents.findings import NginxTest
from nginx_tune.errors import UndecidedError
from nginx_tune.experiment.operations import MODULE_INSIDE, TRIAL, TrialRequest, Tried
from nginx_tune.host.door import HostReadError
from nginx_tune.host.parse_storage import is_inside
from nginx_tune.host.paths import absolute_path
from nginx_tune.nginx.lab.enclosure import Enclosure, HostNeeds
from nginx_tune.nginx.lab.sandbox import Sandbox, bound, given_up
from nginx_tune.sandbox.launch import run_inside
from nginx_tune.sandbox.places import read_mounts
from nginx_tune.sandbox.root import OWN_MEMORY

MOST_RUNS = 200
"""Each run past the first gives nginx one more thing that the sandbox had taken away."""

_SECONDS = 60.0
_NO_PLACE = re.compile(
    r'(?:\((?:\) )?"|bind\(\) to unix:)(/[^"\n]*?)(?:"(?:, [0-9]+\))?)? failed \((?:2|13|30|75): '
)
"""ENOENT, EACCES (Landlock's word for what takes no writes), EROFS and EOVERFLOW (what an ordinary
user's namespace says of a directory of another user)."""
_NO_PARENT = re.compile(r'\[emerg\].*mkdir\(\) "(/[^"\n]*)" failed \(2: ')
_NO_SECRET = re.compile(
    r'cannot load certificate(?: key)? "(/[^"\n]*)": BIO_new_file\(\) failed'
    r'|\("(/[^"\n]*)"\) failed \(SSL: '
)
"""The same by OpenSSL's words, of certificates, keys and parameters."""
_NO_HOST = re.compile(r'host not found in [a-z "]*?"?([^\s":;/$]+)(?::[0-9]+)?"')
_BIND_ANYWHERE = ("ipv4/ip_nonlocal_bind", "ipv6/ip_nonlocal_bind")


def try_configuration(
    binary: str,
    conf: str,
    *,
    prefix: str | None,
    given: str = "",
    replaced: Mapping[str, bytes],
    view: HostNeeds | None = None,
) -> NginxTest:
    """The words of the target's ``nginx -t`` on a configuration with some files replaced.

    ``given`` is its ``-g``.
    Errors: MissingPermissionError when the sandbox cannot be made by this user.
    """
    argv = [binary, "-t", "-c", absolute_path(conf)]
    argv += ["-p", absolute_path(prefix)] if prefix is not None else []
    argv += ["-g", given] if given else []
    with Sandbox(MODULE_INSIDE) as sandbox:
        group = sandbox.group()
        lacking = bound(group, sandbox, is_brief=True)
        request = TrialRequest(
            argv=argv,
            files={os.path.realpath(path): data for path, data in replaced.items()},
            view=view or HostNeeds(),
            join_files=[str(file) for file in group.join_files()],
        )
        tried = sandbox.ask(TRIAL, request)
    refused = ", ".join(tried.refused_calls)
    if refused and tried.status:
        said = tried.messages[-1] if tried.messages else "no message"
        raise UndecidedError(
            f"{conf}: nginx -t failed after the sandbox had refused it {refused}: {said}",
            hint="what a module needs of the kernel beyond nginx cannot be tried here",
        )
    return NginxTest(
        accepted=tried.status == 0,
        messages=[*tried.messages, *([f"the sandbox refused nginx {refused}"] if refused else [])],
        next_step=_next_step(tried.messages) if tried.status else "",
        weaker_sandbox=sorted({*given_up(), *lacking}),
    )


def _next_step(messages: list[str]) -> str:
    """The next step after a refusal whose words do not say it."""
    for line in messages:
        if found := _NO_PARENT.search(line):
            return (
                f"make {os.path.dirname(found[1])}: nginx makes only the last directory "  # noqa: PTH120
                "of a temporary or cache path"
            )
        secret = _NO_SECRET.search(line)
        path = (secret[1] or secret[2]) if secret else ""
        if path and not os.access(path, os.R_OK):
            is_there = os.path.lexists(path) or not os.access(os.path.dirname(path), os.X_OK)  # noqa: PTH120
            if is_there:
                return f"this user may not read {path}: run it as root, or with a key of your own"
    return ""


def try_inside(request: TrialRequest, directory: Path, enclosure: Enclosure) -> Tried:
    """Run the test; called by the process inside the sandbox.

    What the view says that nginx writes to, it gets before: each directory that it asks for by
    failing is a run of its own. The last one counts.
    """
    argv = request.argv
    _bind_anywhere()
    show_files(request.files, directory, enclosure)
    hosts = Path("/etc/hosts").read_text() if Path("/etc/hosts").exists() else "127.0.0.1 x\n"
    given: set[str] = set()
    _foresee(request.view, enclosure)
    run = _run(argv, enclosure)
    for _ in range(MOST_RUNS):
        if run.status == 0:
            break
        wanted = _lacking(run.messages)
        if wanted is None:
            break
        if not wanted.startswith("/"):
            if wanted in given:
                break
            given.add(wanted)
            hosts += f"127.0.0.1 {wanted}\n"
            _show_hosts(hosts, directory, enclosure)
        elif not _give_place(wanted, given, enclosure, is_read=_reads(run.messages, wanted)):
            break
        run = _run(argv, enclosure)
    return run


def try_laid(argv: list[str], enclosure: Enclosure) -> Tried:
    """Run the test on the files as they are shown now."""
    return _run(argv, enclosure)


def show_files(
    files: Mapping[str, bytes], directory: Path, enclosure: Enclosure
) -> dict[str, Path]:
    """Show other bytes in the place of files, which need not exist; where each is then written."""
    copies = {path: directory / f"replaced-{number}" for number, path in enumerate(files)}
    for path, copy in copies.items():
        try:
            mode = os.stat(path).st_mode & 0o777  # noqa: PTH116
        except OSError:
            mode = 0o644
        write_new(copy, files[path], mode=mode)
        enclosure.lay(path, copy)
    return copies


def give_names(argv: list[str], directory: Path, enclosure: Enclosure) -> list[str]:
    """Have every name that a configuration needs resolve, to where nothing but stubs answers.

    Shape: the names.

    Called by the process inside the sandbox. What else nginx says of the configuration it says
    again when it is started.
    """
    from nginx_tune.nginx.lab.stub_server import RESOLVED  # noqa: PLC0415  # not for a test alone

    given: list[str] = []
    places: set[str] = set()
    hosts = Path("/etc/hosts").read_text() if Path("/etc/hosts").exists() else ""
    for _ in range(MOST_RUNS):
        run = _run(argv, enclosure)
        wanted = _lacking(run.messages) if run.status else None
        if wanted is None or wanted in given:
            break
        if wanted.startswith("/"):
            if not _give_place(wanted, places, enclosure, is_read=_reads(run.messages, wanted)):
                break
            continue
        given.append(wanted)
        hosts = f"{hosts.rstrip()}\n{RESOLVED} {wanted}\n"
        _show_hosts(hosts, directory, enclosure)
    return given


def _run(argv: list[str], enclosure: Enclosure) -> Tried:
    try:
        prepared = enclosure.prepare(argv[:1])
        run, refused = run_inside(argv, prepared, _SECONDS, join_files=enclosure.join_files)
    except HostReadError as error:
        raise UndecidedError(f"{argv[0]} -t: {error.reason}") from None
    messages = [line for line in run.stderr.splitlines() if line]
    return Tried(status=run.status, messages=messages, refused_calls=refused)


def _give_place(path: str, given: set[str], enclosure: Enclosure, *, is_read: bool) -> bool:
    """Have a path there that nginx found missing or read-only: to read, then to write; whether."""
    real = Path(path)
    if path not in given and os.path.exists(path):  # noqa: PTH110  # Path's raises where closed
        given.add(path)
        enclosure.show(path)
        return True
    if is_read:  # a key that this user may not read: no place to write to makes it readable
        return False
    parent = str(real.parent)
    if not real.parent.is_dir():
        return False
    enclosure.unshow(path)
    # What is in the directory is to stay in sight; what others own in it cannot be copied up by
    # an ordinary user, so in the end it goes, unless the configuration itself would.
    if enclosure.copy(parent, (*enclosure.view.files, path)):
        return True
    empty = f"an empty {parent}"
    holds = any(_is_file_in(one, parent) for one in enclosure.view.shown)
    if os.geteuid() == 0 or holds or empty in given:
        return False
    given.add(empty)
    enclosure.cover(parent)
    return True


def _is_file_in(path: str, directory: str) -> bool:
    real = os.path.realpath(path)
    return os.path.isfile(real) and is_inside(real, os.path.realpath(directory))  # noqa: PTH113


def _foresee(view: HostNeeds, enclosure: Enclosure) -> None:
    """Let the directories take writes that nginx surely asks for: empty ones in their places.

    Not those that hold what nginx reads, nor those in which other file systems are mounted: of
    them it gets those that it fails on.
    """
    points = {mount.mount_point for mount in read_mounts()}
    kept = [os.path.realpath(path) for path in view.shown]
    there = {os.path.realpath(path) for path in view.written if os.path.isdir(path)}  # noqa: PTH112
    found: list[str] = []
    for path in sorted(there - set(OWN_MEMORY)):
        holds = any(is_inside(one, path) for one in (*kept, *(points - {path})))
        if not holds and not any(is_inside(path, cover) for cover in found):
            found.append(path)
    enclosure.cover_all(found, there)


def _lacking(messages: Sequence[str]) -> str | None:
    """The path that is not there or takes no writes, or the name that could not be resolved."""
    for line in messages:
        if "[emerg]" not in line:
            continue
        if path := _NO_PLACE.search(line):
            return path[1]
        if secret := _NO_SECRET.search(line):
            return secret[1] or secret[2]
        if name := _NO_HOST.search(line):
            return name[1]
    return None


def _reads(messages: Sequence[str], path: str) -> bool:
    """True if nginx would only read there: a certificate, a key or parameters."""
    return any(path in found.groups() for found in _NO_SECRET.finditer("\n".join(messages)))


def _show_hosts(text: str, directory: Path, enclosure: Enclosure) -> None:
    copy = directory / "hosts"
    if not copy.exists():
        write_new(copy, b"", mode=0o644)
        enclosure.lay("/etc/hosts", copy)
    copy.write_text(text)


def write_new(path: Path, data: bytes, *, mode: int) -> None:
    """Write a file that is nobody else's before it has its mode."""
    number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(data)
        os.fchmod(number, mode)


def _bind_anywhere() -> None:
    for name in _BIND_ANYWHERE:
        try:
            Path("/proc/sys/net", name).write_text("1")
        except OSError:  # a kernel without IPv6; nginx then says so of its addresses
            continue


class ShownFiles:
    """The files that are laid over, and the bytes that each variant sees there."""

    def __init__(self) -> None:
        self._plain: dict[str, bytes] = {}
        self._of_variant: Mapping[str, Mapping[str, bytes]] = {}
        self._copies: dict[str, Path] = {}
        self._seen: dict[str, bytes] = {}

    def lay(
        self,
        of_variant: Mapping[str, Mapping[str, bytes]],
        directory: Path,
        enclosure: Enclosure,
    ) -> None:
        """Lay the files of all variants over; one that no variant has is empty.

        ``of_variant``: by the variant's name the bytes of each file, by its path. The copies are
        kept in the directory.
        """
        paths = sorted({path for files in of_variant.values() for path in files})
        self._plain = {path: _bytes_of(Path(path)) for path in paths}
        self._of_variant, self._seen = of_variant, dict(self._plain)
        self._copies = show_files(self._plain, directory, enclosure)

    def turn_to(self, variant: str) -> None:
        """Show what this variant sees."""
        own = self._of_variant.get(variant, {})
        for path, copy in self._copies.items():
            data = own.get(path, self._plain[path])
            if self._seen[path] != data:
                copy.write_bytes(data)
                self._seen[path] = data


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
