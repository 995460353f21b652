"""The facts about a host in one document, with the current settings of its nginx."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.scopes import http_blocks
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.documents.facts import Dataset, Facts, Nginx
from nginx_tune.documents.site import GZIP_LINE
from nginx_tune.errors import UsageError
from nginx_tune.host.cpu import read_cpu, with_workers
from nginx_tune.host.door import Gaps, Host, HostReadError, under
from nginx_tune.host.kernel import of_network, of_nginx, read_kernel, read_limits
from nginx_tune.host.memory import read_memory
from nginx_tune.host.mounts import View, view_of
from nginx_tune.host.network import (
    add_counters,
    add_network_use,
    ask_listening,
    read_listeners,
    read_network,
)
from nginx_tune.host.storage import read_storage
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.nginx.overwriting import refuse_in_tree
from nginx_tune.nginx.subject import ConfigurationFiles

DATASET_BUDGET_SECONDS = 10.0


def gather_facts(
    host: Host,
    *,
    paths: Sequence[str] = (),
    datasets: Sequence[str] = (),
    nginx_binary: str | None = None,
    pid: int | None = None,
    conf_path: str | None = None,
    link_speeds: Mapping[str, int] | None = None,
    memory_cgroup: str | None = None,
    loop_is_leaf: bool = False,
    dataset_budget_seconds: float = DATASET_BUDGET_SECONDS,
    sample_ratio: float = 1.0,
    watch_seconds: float = 0.0,
) -> Facts:
    """The facts of a host; ``unknown`` has the reason of each null.

    Limits, cgroups and CPUs are those of the running nginx master (``pid``, or the one that reads
    ``conf_path``), else of the calling process. Paths that do not exist here are looked up in
    its mount namespace; with ``pid``, all paths are.

    ``memory_cgroup`` is the directory of another memory cgroup. ``loop_is_leaf`` treats loop
    devices as disks, as emulated hosts need it. ``link_speeds`` are bits per second by link.
    ``sample_ratio`` is the share of a dataset's files whose size is read. Disks are watched for
    ``watch_seconds``.

    Errors: UsageError for a dataset that does not exist, a named binary that is not nginx, a
            pid that is not an nginx master, a speed for a link that does not exist.
    """
    gaps: Gaps = {}
    nginx, found = read_nginx(host, binary=nginx_binary, pid=pid, conf_path=conf_path)
    gaps |= under("/nginx", found)
    named = pid is not None
    pid = nginx.running.pid if nginx.running else None
    process = "self" if pid is None else str(pid)
    foreign = pid if nginx.running and nginx.running.other_mount_namespace else None
    scanned = []
    for index, path in enumerate(datasets):
        dataset = _read_dataset(
            host,
            path,
            _dataset_places(host, path, foreign, nginx_first=named),
            budget_seconds=dataset_budget_seconds,
            sample_ratio=sample_ratio,
        )
        gaps |= under(f"/datasets/{index}", _dataset_gaps(dataset))
        scanned.append(dataset)
    kernel, found = read_kernel(host)
    gaps |= under("/kernel", found)
    cpu, found = read_cpu(host, process=process)
    cpu = with_workers(cpu, nginx.libc, found)
    gaps |= under("/cpu", found)
    memory, found = read_memory(host, process=process, cgroup_directory=memory_cgroup)
    gaps |= under("/memory", found)
    storage, found = read_storage(
        host,
        [*paths, *datasets],
        loop_is_leaf=loop_is_leaf,
        nginx_pid=foreign,
        nginx_first=named,
        watch_seconds=watch_seconds,
    )
    gaps |= under("/storage", found)
    network, found = read_network(host, link_speeds or {})
    gaps |= under("/network", found)
    listening = ask_listening(host, pid)
    if nginx.running and nginx.running.other_network_namespace:
        kernel, found = of_network(kernel, listening)
        gaps |= under("/kernel", found)
    network, found = add_counters(host, network, listening, pid)
    gaps |= under("/network", found)
    network, found = add_network_use(host, network, pid)
    gaps |= under("/network", found)
    listeners, found = read_listeners(host, listening, pid)
    gaps |= under("/listeners", found)
    limits, found = read_limits(host, process=process)
    limits = of_nginx(host, limits, is_running=process != "self")
    gaps |= under("/limits", found)
    for name in CURRENT_SETTINGS:
        if getattr(nginx, name) is None:
            gaps[f"/nginx/{name}"] = "of its configuration, which was not read"
    facts = Facts(
        kernel=kernel,
        cpu=cpu,
        memory=memory,
        storage=storage,
        network=network,
        limits=limits,
        nginx=nginx,
        datasets=scanned,
        listeners=listeners,
    )
    return seal_facts(facts, gaps)


def _dataset_places(host: Host, path: str, foreign: int | None, *, nginx_first: bool) -> list[str]:
    """The path of a dataset here, and the path for an nginx in another mount namespace."""
    view = None if foreign is None else view_of(host, foreign)
    real = view.real_path(path) if isinstance(view, View) else None
    if not isinstance(view, View) or not isinstance(real, str):
        return [path]
    places = [path, view.outside(real)]
    return places[::-1] if nginx_first else places


def _read_dataset(
    host: Host, path: str, places: list[str], *, budget_seconds: float, sample_ratio: float
) -> Dataset:
    """The dataset at the first of the places where a scan is possible."""
    reason = ""
    for place in places:
        try:
            scanned = host.scan_dataset(
                place, budget_seconds=budget_seconds, sample_ratio=sample_ratio
            )
        except HostReadError as error:
            reason = reason or error.reason
            continue
        return msgspec.structs.replace(scanned, path=path, seen_by_nginx=place != path)
    raise UsageError(f"dataset {path}: {reason}")


def _dataset_gaps(dataset: Dataset) -> Gaps:
    gaps: Gaps = {}
    if dataset.sizes is None:
        gaps["/sizes"] = dataset.reason or "the dataset has no files"
    reason = dataset.residency.reason or "not asked"
    if dataset.allocated_bytes is None:
        gaps["/allocated_bytes"] = "the scan did not report it"
    if dataset.bytes_error_ratio is None:
        gaps["/bytes_error_ratio"] = "too few files were sampled"
    for field in ("ratio", "coverage_ratio", "error_ratio"):
        if getattr(dataset.residency, field) is None:
            gaps[f"/residency/{field}"] = reason
    return gaps


def seal_facts(
    facts: Facts, gaps: Gaps, *, default_reason: str = "the host does not report it"
) -> Facts:
    """The facts with ``unknown`` complete and every text valid UTF-8.

    Names of files and mounts are bytes; those that are not UTF-8 are escaped.
    """
    nulls: list[str] = []
    built = _walk(msgspec.to_builtins(facts), "", nulls)
    built["unknown"] = [
        {"path": pointer, "reason": _fit(gaps.get(pointer, default_reason))}
        # Unreadable values that are not null come last, such as a list left empty.
        for pointer in [*nulls, *sorted(gaps.keys() - set(nulls))]
    ]
    return msgspec.convert(built, Facts)


def _walk(value: Any, pointer: str, nulls: list[str]) -> Any:
    if isinstance(value, dict):
        return {
            _fit(key): _walk(part, f"{pointer}/{_token(key)}", nulls) for key, part in value.items()
        }
    if isinstance(value, list):
        return [_walk(part, f"{pointer}/{index}", nulls) for index, part in enumerate(value)]
    if value is None:
        nulls.append(pointer)
    return _fit(value) if isinstance(value, str) else value


def _fit(text: str) -> str:
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _token(key: str) -> str:
    """A key in a JSON pointer (RFC 6901)."""
    return _fit(key).replace("~", "~0").replace("/", "~1")


CURRENT_SETTINGS = ("user", "mime_types_path", "gzip", "tcp_nopush")
"""The fields of ``nginx`` that come from its configuration."""
_PATTERNS = frozenset("*?[")
"""Characters of a pattern in an include. Source: ngx_conf_include()."""


def with_current_settings(facts: Facts, host: Host, *, results: Sequence[str] = ()) -> Facts:
    """The facts with the user, media types and compression of the current configuration.

    The build's defaults cannot replace them: its user is often ``nobody``, who may not read the
    files, and it has no types and no compression. The facts are unchanged without a configuration,
    or with one in another mount namespace. ``results`` are files that will be written.

    Errors: UsageError for a result that is a file of the configuration.
    """
    running = facts.nginx.running
    path = (running.conf_path if running else None) or facts.nginx.conf_path
    if path is None or (running is not None and running.other_mount_namespace):
        return facts
    tree = read_tree(path, ConfigurationFiles(host), prefix=facts.nginx.prefix)
    refuse_in_tree(results, tree.files, tree.asked)
    if not tree.main.all("http"):
        return facts
    nginx = current_settings(tree, facts.nginx)
    found = {f"/nginx/{name}" for name in CURRENT_SETTINGS if getattr(nginx, name) is not None}
    return replace(
        facts, nginx=nginx, unknown=[gap for gap in facts.unknown if gap.path not in found]
    )


def current_settings(tree: ConfTree, nginx: Nginx) -> Nginx:
    """The facts of nginx with the settings of its configuration."""
    user = tree.main.first("user")
    lines = [line for http in http_blocks(tree) if http.block for line in http.block]
    return replace(
        nginx,
        user=" ".join(user.args) if user is not None and user.args else None,
        mime_types_path=next((path for line in lines if (path := _types_path(line, tree))), None),
        gzip=[
            line.words
            for line in lines
            if GZIP_LINE.fullmatch(line.words) and not any(" " in arg for arg in line.args)
        ],
        tcp_nopush=any(line.words == "tcp_nopush on" for line in lines),
    )


def _types_path(line: Directive, tree: ConfTree) -> str | None:
    """The file of a ``types`` block, if nginx includes it by a fixed name."""
    if line.name != "types" or line.file == tree.path or not line.file.startswith("/"):
        return None
    return None if _PATTERNS & set(line.file) else line.file
