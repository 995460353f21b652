"""The parts of a host that a sandbox shows: a configuration's files, and an emulated host's facts.

Files: every argument that is or contains an absolute path counts as one that nginx reads, except
arguments of directives that take URIs; missing files are left out later. Directories that hold much
of the system are shown only if served.

Worker header: an ``add_header`` line that makes nginx name the worker in each response. A level
inherits ``add_header`` only if it has none of its own (ngx_http_headers_merge_conf). So the line is
added to ``http``, and after the first ``add_header`` of each level that has one. It follows other
text on the same line, so line numbers in nginx's messages stay the same.

Facts: read inside the lab, with the lab's limits in place of the machine's.
"""

import math
import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.edits import ConflictError, Edit, apply_edits
from nginx_tune.conf.scopes import http_blocks, http_directives, scopes
from nginx_tune.conf.served import served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.facts import (
    Cpu,
    Dataset,
    Disk,
    Facts,
    Link,
    Network,
    PathStorage,
    Storage,
)
from nginx_tune.documents.facts_storage import Curve, CurvePoint, SizeBucket, Sizes, Sweep
from nginx_tune.documents.lab import Lab, LabDisk
from nginx_tune.experiment.target import listen_sockets, written_files
from nginx_tune.nginx.lab.disk_models import model_of, predict_curve
from nginx_tune.nginx.lab.enclosure import HostNeeds
from nginx_tune.sandbox.confinement import ResourceLimits

_URIS = frozenset(
    {
        "location", "rewrite", "try_files", "error_page", "return", "auth_request", "mirror", "if",
        "add_header", "add_trailer", "server_name", "set", "sub_filter", "add_before_body",
        "add_after_body", "post_action", "index", "random_index", "userid_path", "secure_link",
        "internal_redirect", "health_check", "echo", "echo_exec", "echo_location", "ssi_value",
        "proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass",
        "proxy_redirect", "proxy_cookie_path", "proxy_cookie_domain", "limit_except", "referer",
        "valid_referers", "log_format", "fastcgi_split_path_info", "expires", "access_log",
        "error_log", "pid", "lock_file", "google_perftools_profiles", "rtmp_socket_dir",
    }
)  # fmt: skip
"""Directives whose arguments with a slash are not files to read."""
_WRITTEN = ("_temp_path", "_cache_path", "_store")
"""Suffixes of directives whose directories nginx makes itself."""
_SERVED = ("root", "alias")
_BROAD = frozenset(
    {
        "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/media", "/mnt", "/opt",
        "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib",  # noqa: S108
        "/usr/local", "/usr/sbin", "/usr/share", "/var", "/var/cache", "/var/lib", "/var/log",
        "/var/run", "/var/tmp",  # noqa: S108
    }
)  # fmt: skip
"""Directories that hold much of the system."""
_PROGRAMS_OWN = ("--modules-path=", "--conf-path=")
_STORES = ("proxy_store", "fastcgi_store", "uwsgi_store", "scgi_store")
_DEFAULT_PREFIX = "/usr/local/nginx"


def plan_view(
    trees: Iterable[ConfTree], flags: Iterable[str], prefix: str | None, *, directory: str
) -> HostNeeds:
    """The part of the host that the sandbox of some configurations shows.

    ``flags``: configure arguments. ``prefix``: nginx's ``-p``; None for the build's prefix.
    ``directory``: the base of the trees' relative paths.
    """
    flags = list(flags)
    trees = list(trees)
    shown = dict.fromkeys(_build_paths(flags, prefix))
    for tree in trees:
        shown |= dict.fromkeys(_read_paths(tree, directory))
    lines = [line for tree in trees for line in tree.main.walk()]
    return HostNeeds(
        shown=list(shown),
        written=sorted(
            written_places(
                flags,
                # For a directory that nginx makes, also its parent.
                [
                    path
                    for tree in trees
                    for file in (*written_files(tree), *listen_sockets(tree))
                    for path in (file, file.removesuffix("/."))
                ],
                prefix=build_prefix(flags, prefix),
            )
        ),
        files=sorted(
            {
                posixpath.join(directory, path)
                for tree in trees
                for path in written_files(tree)
                if not path.endswith("/.")
            }
        ),
        uses_unix_sockets=any("unix:" in arg for line in lines for arg in line.args),
        uses_file_aio="--with-file-aio" in flags,
        transparent=any("transparent" in line.args[1:] for line in lines),
        workers=max(map(_workers, lines), default=0),
        threads=max((sum(map(_threads, tree.main.walk())) for tree in trees), default=0),
    )


_BUILD_FILES = ("--error-log-path", "--http-log-path", "--pid-path", "--lock-path")
_BUILD_DIRECTORIES = (
    "--http-client-body-temp-path",
    "--http-proxy-temp-path",
    "--http-fastcgi-temp-path",
    "--http-uwsgi-temp-path",
    "--http-scgi-temp-path",
)
_ALWAYS = ("/run",)
_DEFAULT_LOGS = "logs"
_DEFAULT_DIRECTORIES = {
    "--http-client-body-temp-path": "client_body_temp",
    "--http-proxy-temp-path": "proxy_temp",
    "--http-fastcgi-temp-path": "fastcgi_temp",
    "--http-uwsgi-temp-path": "uwsgi_temp",
    "--http-scgi-temp-path": "scgi_temp",
}
"""Defaults below the prefix. Source: auto/options, auto/init."""


def plan_places(
    flags: Iterable[str], written: Iterable[str] = (), *, prefix: str | None = None
) -> list[str]:
    """The directories to cover: of logs, pid files and temporary files.

    ``flags``: configure arguments. ``written``: files that a configuration names. ``prefix``:
    nginx's prefix for relative paths; None if unknown. Directories inside others, ``stderr``,
    ``syslog:`` and variables are left out.
    """
    return outermost(written_places(flags, written, prefix=prefix))


def outermost(places: Collection[str]) -> list[str]:
    """The places that are not inside another place, sorted."""
    return sorted(
        place
        for place in places
        if not any(other != place and _inside(place, other) for other in places)
    )


def written_places(
    flags: Iterable[str], written: Iterable[str] = (), *, prefix: str | None = None
) -> set[str]:
    """The directories of ``plan_places``, including those inside others."""
    places = set(_ALWAYS)
    flags = list(flags)
    places |= _defaults(flags, prefix) if prefix else set()
    for flag in flags:
        name, _, value = flag.partition("=")
        if name in _BUILD_FILES or name in _BUILD_DIRECTORIES:
            places |= _parent(value)
    for path in written:
        places |= _parent(path)
    return places


def required_directories(written: Iterable[str]) -> list[str]:
    """The directories of files that nginx writes, which must exist before it starts.

    nginx makes the last directory of a temporary or cache path itself. Source: ngx_create_paths.
    """
    # A directory that nginx makes ends in "/."; its parent must exist.
    files = (path.removesuffix("/.") for path in written)
    return sorted({place for path in files for place in _parent(path)})


def _defaults(flags: list[str], prefix: str) -> set[str]:
    """The build's places below its prefix: defaults, and relative paths."""
    given = {flag.partition("=")[0]: flag.partition("=")[2] for flag in flags}
    found = set()
    for option in _BUILD_FILES:
        value = given.get(option, f"{_DEFAULT_LOGS}/x")
        if not value.startswith("/") and "/" in value:
            found |= _parent(f"{prefix.rstrip('/')}/{value}")
    for option, default in _DEFAULT_DIRECTORIES.items():
        value = given.get(option, default)
        if not value.startswith("/"):
            found.add(f"{prefix.rstrip('/')}/{value}")
    return found


def _parent(path: str) -> set[str]:
    if not path.startswith("/") or "$" in path:
        return set()
    parent = PurePosixPath(posixpath.dirname(path))  # of "/a/." it is /a: paths drop the dot
    # /var/run is a link to /run, and /dev holds devices; neither needs a cover.
    known = {PurePosixPath("/"), PurePosixPath("/dev"), PurePosixPath("/var/run")}
    return set() if parent in known else {str(parent)}


def _inside(place: str, other: str) -> bool:
    return PurePosixPath(other) in PurePosixPath(place).parents


def _threads(line: Directive) -> int:
    """The threads per worker of a ``thread_pool`` line; nginx refuses anything but a number."""
    if line.name != "thread_pool":
        return 0
    counts = [arg.removeprefix("threads=") for arg in line.args if arg.startswith("threads=")]
    numbers = [int(text) for text in counts if text.isascii() and text.isdecimal()]
    return min(sum(numbers), ResourceLimits().processes)


def _workers(line: Directive) -> int:
    """The number of a ``worker_processes`` line; 0 for any other value."""
    count = line.value if line.name == "worker_processes" and line.args else ""
    is_number = count.isascii() and count.isdecimal()
    return min(int(count), ResourceLimits().processes) if is_number else 0


def merge_views(views: Sequence[HostNeeds]) -> HostNeeds:
    """The union of views, for variants of several builds in one sandbox."""
    return HostNeeds(
        shown=list(dict.fromkeys(path for view in views for path in view.shown)),
        written=sorted({path for view in views for path in view.written}),
        files=sorted({path for view in views for path in view.files}),
        uses_unix_sockets=any(view.uses_unix_sockets for view in views),
        uses_file_aio=any(view.uses_file_aio for view in views),
        transparent=any(view.transparent for view in views),
        workers=max((view.workers for view in views), default=0),
        threads=max((view.threads for view in views), default=0),
    )


def build_prefix(flags: Iterable[str], prefix: str | None) -> str:
    """The prefix of relative paths: ``-p``, else the build's. Source: auto/options."""
    given = [flag.partition("=")[2] for flag in flags if flag.startswith("--prefix=")]
    return prefix or (given or [_DEFAULT_PREFIX])[-1]


def _build_paths(flags: list[str], prefix: str | None) -> Iterator[str]:
    base = build_prefix(flags, prefix)
    yield from _narrow(base)
    for option in _PROGRAMS_OWN:
        for flag in flags:
            if flag.startswith(option):
                path = posixpath.join(base, flag.removeprefix(option))
                yield from _narrow(posixpath.dirname(path) if "conf" in option else path)


def _read_paths(tree: ConfTree, directory: str) -> Iterator[str]:
    base = posixpath.dirname(posixpath.join(directory, tree.path))
    for file in (tree.path, *tree.files):
        full = posixpath.normpath(posixpath.join(directory, file))
        yield full
        yield from _narrow(posixpath.dirname(full))
    for line in tree.main.walk():
        if line.name not in _URIS and not line.name.endswith(_WRITTEN):
            yield from _named(line, tree, base)
    for served in served_paths(tree):
        if served.via != "cache":  # nginx writes to it, so it is covered
            yield served.path


def _named(line: Directive, tree: ConfTree, base: str) -> Iterator[str]:
    for arg in line.args:
        # As in "crypt:/etc/keys/x", "file=/a", "path=/a;/b/?.lua" and "unix:/a".
        for piece in arg.replace(";", ":").replace("=", ":").replace(",", ":").split(":"):
            if piece.startswith("/"):
                yield from _static(piece, is_served=line.name in _SERVED)
            elif "/" in piece or line.name in _SERVED or line.name == "include":
                for start in dict.fromkeys((base, tree.prefix or base)):
                    yield from _static(posixpath.join(start, piece), is_served=False)


def _static(path: str, *, is_served: bool) -> Iterator[str]:
    """The beginning of a path, before any variable or pattern."""
    cut = min((i for i in (path.find(c) for c in "$*?[") if i >= 0), default=len(path))
    if cut < len(path):
        path = path[:cut].rpartition("/")[0] or "/"
    path = posixpath.normpath(path)
    if is_served:
        yield path
    else:
        yield from _narrow(path)


def _narrow(path: str) -> Iterator[str]:
    if posixpath.normpath(path) not in _BROAD and path.startswith("/"):
        yield path


def opened_files(tree: ConfTree) -> list[str]:
    """Absolute paths of the files that nginx opens when it starts: logs and files it reads."""
    found: dict[str, None] = {}
    for line in tree.main.walk():
        is_log = line.name in {"access_log", "error_log"}
        if line.args and (is_log or line.name not in _URIS) and line.name not in _SERVED:
            name = line.value
            is_name = "/" in name and not name.startswith(("syslog:", "memory:", "unix:"))
            full = None if "$" in name or not is_name else tree.full_path(name)
            if full is not None:
                found[full] = None
    return list(found)


def module_files(tree: ConfTree, flags: Iterable[str], prefix: str | None) -> list[str]:
    """Absolute paths of the modules that a tree loads. Source: ngx_load_module."""
    base = tree.prefix or build_prefix(flags, prefix)
    lines = (line for line in tree.main.walk() if line.name == "load_module" and line.args)
    names = (posixpath.normpath(posixpath.join(base, line.value)) for line in lines)
    return list(dict.fromkeys(names))


def written_directories(tree: ConfTree) -> list[str]:
    """Directories that requests write to and that are served or read too.

    They take stored answers, uploads, and logs whose paths have variables.
    """
    found: dict[str, None] = {}
    for line in http_directives(tree):
        is_varied = line.name == "access_log" and "$" in line.value
        if is_varied or (line.name in _STORES and line.value not in {"on", "off"}):
            found |= dict.fromkeys(_directory_of(tree, line.value))
    for scope in scopes(tree):
        stores = any(scope.value(name) == "on" for name in _STORES)
        methods = scope.effective("dav_methods")
        if stores or (methods is not None and methods.args != ("off",)):
            for name in _SERVED:
                place = scope.effective(name)
                if place is not None and place.args:
                    found |= dict.fromkeys(_directory_of(tree, f"{place.value}/$"))
    return [path for path in found if path not in _BROAD]


def _directory_of(tree: ConfTree, name: str) -> Iterator[str]:
    """The directory before the first variable of a path."""
    full = tree.full_path(name.partition("$")[0] + "$")
    if full is not None:
        yield posixpath.dirname(full)


HEADER = "X-Probe-Worker"
HEADER_WORDS = (HEADER, "$pid", "always")
_LINE = f"add_header {' '.join(HEADER_WORDS)};"


def with_worker_header(trees: Sequence[ConfTree]) -> list[dict[str, bytes]]:
    """The files with the worker header added, by tree; empty for all if one tree cannot have it."""
    found = [_files_of(tree) for tree in trees]
    return found if all(found) else [{} for _ in trees]


def _files_of(tree: ConfTree) -> dict[str, bytes]:
    if tree.is_part or "add_header_inherit" in tree.names:  # the line would be sent twice
        return {}
    edits = [_behind(http, (http.start, "add_header")) for http in http_blocks(tree)]
    own = [scope.sets("add_header") for scope in scopes(tree)]
    edits += [_behind(line) for line in own if line is not None]
    by_file: dict[str, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.source.file, []).append(edit)
    try:
        return {file: apply_edits(found[0].source, found) for file, found in by_file.items()}
    except ConflictError:
        return {}


def _behind(directive: Directive, claim: tuple[int, str] | None = None) -> Edit:
    """The edit that adds the worker header after a directive, or after its opening brace."""
    return Edit(directive.source, directive.end, directive.end, f" {_LINE}", claim)


_READ_BYTES = 128 << 10
"""The kernel's usual read-ahead: what sendfile() from a cold page cache reads."""
_LONG_READ_BYTES = 512 << 10
"""Maximum number of bytes that nginx reads at once: ``sendfile_max_chunk`` of the plain
configuration."""
_SMALL_READ_BYTES = 4096


def lab_datasets(lab: Lab) -> Iterator[Dataset]:
    """A dataset for each disk with files, as a scan would report it, from the lab's description."""
    for disk in lab.disks:
        sizes = sorted(
            size
            for data in lab.data
            if data.disk == disk.name
            for size in (data.sizes.values() or [data.file_bytes] * data.files)
        )
        if not sizes:
            continue
        upper = [1 << max(0, math.ceil(math.log2(size))) for size in sizes]
        count, total = Counter(upper), Counter[int]()
        for bound, size in zip(upper, sizes, strict=True):
            total[bound] += size
        yield Dataset(
            path=disk.mount,
            files=len(sizes),
            bytes=sum(sizes),
            sizes=Sizes(
                mean_bytes=sum(sizes) / len(sizes),
                p50_bytes=sizes[len(sizes) // 2],
                p90_bytes=sizes[len(sizes) * 9 // 10],
                p99_bytes=sizes[len(sizes) * 99 // 100],
                max_bytes=sizes[-1],
                buckets=[
                    SizeBucket(le_bytes=bound, files=count[bound], bytes=total[bound])
                    for bound in sorted(count)
                ],
            ),
        )


def emulate(facts: Facts, lab: Lab, *, cpus: int) -> Facts:
    """The facts with the lab's limits instead of the machine's.

    Disks and the link to the clients are declared, not measured; the machine's links are left out.
    """
    memory = facts.memory
    if lab.memory_bytes is not None:
        memory = msgspec.structs.replace(
            memory,
            total_bytes=lab.memory_bytes,
            available_bytes=lab.memory_bytes,
            cgroup_limit_bytes=lab.memory_bytes,
            page_cache_limit_bytes=lab.memory_bytes,
            page_cache_limit_reason="the lab's memory limit around nginx",
            # Names are cached by the process that made the files, outside of the limit.
            names_apart=not lab.cold_names,
        )
    storage = facts.storage
    if lab.disks:
        paths = [
            PathStorage(
                path=disk.mount, mount_point=disk.mount, filesystem="ext4", leaf_disks=[disk.name]
            )
            for disk in lab.disks
        ]
        disks = [_disk(disk) for disk in lab.disks]
        storage = Storage(paths=paths, disks=disks, independent_disk_count=len(disks))
    return msgspec.structs.replace(
        facts,
        cpu=Cpu(
            online=facts.cpu.online,
            cpuset=cpus,
            quota_cpus=lab.quota_cpus,
            effective=min(float(cpus), lab.quota_cpus or float(cpus)),
            model=facts.cpu.model,
        ),
        memory=memory,
        storage=storage,
        network=Network(links=_links(lab)),
    )


def _disk(disk: LabDisk) -> Disk:
    model = model_of(disk) if disk.kind == "modelled" else None
    return Disk(
        name=disk.name,
        class_=disk.class_name,
        class_reason=f"emulated: {_limits(disk) if model is None else 'modelled'}",
        curve=_plateau(disk) if model is None else predict_curve(model, _READ_BYTES),
    )


def _limits(disk: LabDisk) -> str:
    if disk.bytes_per_second is None or disk.reads_per_second is None:
        return "no limit"
    return f"limited to {disk.bytes_per_second >> 20} MiB/s and {disk.reads_per_second} reads/s"


def _links(lab: Lab) -> list[Link]:
    """The link between clients and nginx; empty for the loopback, which has no limit."""
    if lab.topology != "link" or lab.link.bits_per_second is None:
        return []
    reason = "the lab's link between clients and nginx"
    return [Link(name="lab", speed_bits_per_second=lab.link.bits_per_second, speed_reason=reason)]


def _plateau(disk: LabDisk) -> Curve | None:
    """The curve of a limited disk.

    The kernel throttles reads and bytes separately, so a read takes the longer of the two waits,
    not their sum.
    Source: tg_within_iops_limit() and tg_within_bps_limit() in block/blk-throttle.c. The scenario
            thread-pools agrees: a disk limited to 80 MiB/s and 400 reads per second reaches
            80 MiB/s when it is read in chunks.
    """
    if disk.bytes_per_second is None or disk.reads_per_second is None:
        return None

    def points(read_bytes: int) -> list[CurvePoint]:
        rate = min(float(disk.reads_per_second or 0), (disk.bytes_per_second or 0) / read_bytes)
        return [CurvePoint(depth=1, reads_per_second=rate)]

    return Curve(
        read_bytes=_LONG_READ_BYTES,
        points=points(_LONG_READ_BYTES),
        knee_depth=None,
        small_reads=Sweep(read_bytes=_SMALL_READ_BYTES, points=points(_SMALL_READ_BYTES)),
        sequential_bytes_per_second=float(disk.bytes_per_second),
        provenance="declared",
    )
