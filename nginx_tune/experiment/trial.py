"""``nginx -t`` on a tree with some files replaced, in a sandbox.

``nginx -t`` creates logs, pid files and directories, binds addresses, resolves names and runs code
of modules. In the sandbox the file system is read-only except for memory, the only link is ``lo``,
every address can be bound, and every name of the configuration resolves. So only the configuration
is judged, and the host is not touched.

Variants may share paths, such as a configuration and a planned change of it. Each shared file is
covered by one copy, which gets the bytes of the current variant.
"""

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
"""Bound on runs; each run adds one more thing that the sandbox lacks."""

_SECONDS = 60.0
_NO_PLACE = re.compile(
    r'(?:\((?:\) )?"|bind\(\) to unix:)(/[^"\n]*?)(?:"(?:, [0-9]+\))?)? failed \((?:2|13|30|75): '
)
"""A path that failed with ENOENT, EACCES (a read-only place under Landlock), EROFS, or EOVERFLOW
(another user's directory in an ordinary user's namespace)."""
_NO_PARENT = re.compile(r'\[emerg\].*mkdir\(\) "(/[^"\n]*)" failed \(2: ')
_NO_SECRET = re.compile(
    r'cannot load certificate(?: key)? "(/[^"\n]*)": BIO_new_file\(\) failed'
    r'|\("(/[^"\n]*)"\) failed \(SSL: '
)
"""Certificates, keys and parameters that OpenSSL cannot open."""
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
    """The result of ``nginx -t`` on a configuration with some files replaced.

    ``given``: nginx's ``-g``.
    Errors: MissingPermissionError if this user cannot make the sandbox.
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
        message = tried.messages[-1] if tried.messages else "no message"
        raise UndecidedError(
            f"{conf}: nginx -t failed after the sandbox had refused it {refused}: {message}",
            hint="a module that needs more of the kernel than nginx cannot be tested here",
        )
    return NginxTest(
        accepted=tried.status == 0,
        messages=[*tried.messages, *([f"the sandbox refused nginx {refused}"] if refused else [])],
        next_step=_next_step(tried.messages) if tried.status else "",
        weaker_sandbox=sorted({*given_up(), *lacking}),
    )


def _next_step(messages: list[str]) -> str:
    """The next step after a refusal, if nginx's message does not suggest it."""
    for line in messages:
        if found := _NO_PARENT.search(line):
            return (
                f"make {os.path.dirname(found[1])}: nginx makes only the last directory "  # noqa: PTH120
                "of a temporary or cache path"
            )
        secret = _NO_SECRET.search(line)
        path = (secret[1] or secret[2]) if secret else ""
        if not path or os.access(path, os.R_OK):
            continue
        try:
            os.stat(path)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            return f"{path} does not exist here: test where it does, or make one for the test"
        except OSError:
            pass
        return f"this user may not read {path}: run it as root, or with a key of your own"
    return ""


def try_inside(request: TrialRequest, directory: Path, enclosure: Enclosure) -> Tried:
    """Run the test, inside the sandbox.

    Directories that nginx surely writes to are made writable first. Each further directory on which
    it fails takes another run; the last run counts.
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
        missing = _lacking(run.messages)
        if missing is None:
            break
        if not missing.startswith("/"):
            if missing in given:
                break
            given.add(missing)
            hosts += f"127.0.0.1 {missing}\n"
            _show_hosts(hosts, directory, enclosure)
        elif not _give_place(missing, given, enclosure, is_read=_reads(run.messages, missing)):
            break
        run = _run(argv, enclosure)
    return run


def try_laid(argv: list[str], enclosure: Enclosure) -> Tried:
    """Run the test on the files as currently shown."""
    return _run(argv, enclosure)


def show_files(
    files: Mapping[str, bytes], directory: Path, enclosure: Enclosure
) -> dict[str, Path]:
    """Cover files, which need not exist, with copies of other bytes; returns the copies by path."""
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
    """Make every name that a configuration needs resolve to the stubs; returns the names.

    Call it inside the sandbox. Other faults of the configuration show when nginx is started.
    """
    from nginx_tune.nginx.lab.stub_server import RESOLVED  # noqa: PLC0415  # not for a test alone

    given: list[str] = []
    places: set[str] = set()
    hosts = Path("/etc/hosts").read_text() if Path("/etc/hosts").exists() else ""
    for _ in range(MOST_RUNS):
        run = _run(argv, enclosure)
        missing = _lacking(run.messages) if run.status else None
        if missing is None or missing in given:
            break
        if missing.startswith("/"):
            if not _give_place(missing, places, enclosure, is_read=_reads(run.messages, missing)):
                break
            continue
        given.append(missing)
        hosts = f"{hosts.rstrip()}\n{RESOLVED} {missing}\n"
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
    """Make a path that nginx found missing or read-only available, readable first, then writable.

    Returns False if that is not possible.
    """
    real = Path(path)
    if path not in given and os.path.exists(path):  # noqa: PTH110  # Path.exists may raise
        given.add(path)
        enclosure.show(path)
        return True
    if is_read:  # a key that this user may not read; a writable place would not help
        return False
    parent = str(real.parent)
    if not real.parent.is_dir():
        return False
    enclosure.unshow(path)
    # The directory's files should stay visible. An ordinary user cannot copy up other users'
    # files, so the last resort is an empty directory, unless that hides the configuration.
    if enclosure.copy(parent, (*enclosure.view.files, path)):
        return True
    empty = f"an empty {parent}"
    holds = any(_is_file_in(path, parent) for path in enclosure.view.shown)
    if os.geteuid() == 0 or holds or empty in given:
        return False
    given.add(empty)
    enclosure.cover(parent)
    return True


def _is_file_in(path: str, directory: str) -> bool:
    real = os.path.realpath(path)
    return os.path.isfile(real) and is_inside(real, os.path.realpath(directory))  # noqa: PTH113


def _foresee(view: HostNeeds, enclosure: Enclosure) -> None:
    """Cover the directories that nginx surely writes to with empty writable ones.

    Directories that contain mounts or files that nginx reads are left out. They are handled once
    nginx fails on them.
    """
    points = {mount.mount_point for mount in read_mounts()}
    kept = [os.path.realpath(path) for path in view.shown]
    there = {os.path.realpath(path) for path in view.written if os.path.isdir(path)}  # noqa: PTH112
    found: list[str] = []
    for path in sorted(there - set(OWN_MEMORY)):
        holds = any(is_inside(other, path) for other in (*kept, *(points - {path})))
        if not holds and not any(is_inside(path, cover) for cover in found):
            found.append(path)
    enclosure.cover_all(found, there)


def _lacking(messages: Sequence[str]) -> str | None:
    """The path that is missing or not writable, or the name that did not resolve."""
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
    """True for a path that nginx only reads: a certificate, a key or parameters."""
    return any(path in found.groups() for found in _NO_SECRET.finditer("\n".join(messages)))


def _show_hosts(text: str, directory: Path, enclosure: Enclosure) -> None:
    copy = directory / "hosts"
    if not copy.exists():
        write_new(copy, b"", mode=0o644)
        enclosure.lay("/etc/hosts", copy)
    copy.write_text(text)


def write_new(path: Path, data: bytes, *, mode: int) -> None:
    """Write a new file, which only its owner can read until its mode is set."""
    number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(data)
        os.fchmod(number, mode)


def _bind_anywhere() -> None:
    for name in _BIND_ANYWHERE:
        try:
            Path("/proc/sys/net", name).write_text("1")
        except OSError:  # a kernel without IPv6, on whose addresses nginx then fails
            continue


class ShownFiles:
    """Files hidden by mounted copies, whose contents are switched from variant to variant."""

    def __init__(self) -> None:
        self._plain: dict[str, bytes] = {}
        self._of_variant: Mapping[str, Mapping[str, bytes]] = {}
        self._copies: dict[str, Path] = {}
        self._seen: dict[str, bytes] = {}

    def lay(
        self, of_variant: Mapping[str, Mapping[str, bytes]], directory: Path, enclosure: Enclosure
    ) -> None:
        """Mount copies from a directory over the files of all variants; missing files are empty.

        ``of_variant``: by variant, the bytes of files by path.
        """
        paths = sorted({path for files in of_variant.values() for path in files})
        self._plain = {path: _bytes_of(Path(path)) for path in paths}
        self._of_variant, self._seen = of_variant, dict(self._plain)
        self._copies = show_files(self._plain, directory, enclosure)

    def turn_to(self, variant: str) -> None:
        """Show the files that a variant sees."""
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
