"""Facts about a host: everything the other rooms know about it, in one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nginx_tune.documents.facts import Dataset, Facts
from nginx_tune.errors import UsageError
from nginx_tune.host.cpu import read_cpu, with_workers
from nginx_tune.host.door import Gaps, Host, HostReadError, under
from nginx_tune.host.kernel import of_network, of_nginx, read_kernel, read_limits
from nginx_tune.host.listeners import add_counters, ask_listening, read_listeners
from nginx_tune.host.memory import read_memory
from nginx_tune.host.network import read_network
from nginx_tune.host.network_use import add_network_use
from nginx_tune.host.storage import read_storage
from nginx_tune.host.view import View, view_of
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.nginx.standing import STANDING

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
    """The facts of a host; each null in them stands in ``unknown`` with its reason.

    Limits, cgroups and CPUs are those of the running nginx master (or the one with ``pid``),
    else of the calling process; where its mounts are others than ours, paths that we do not have
    are looked for among them, with ``pid`` given all paths. ``conf_path`` is the configuration
    that is meant: of several masters the one that reads it. ``memory_cgroup`` names the
    directory of another memory cgroup; ``loop_is_leaf`` takes each loop device for a disk of
    its own, as an emulated host has them; ``link_speeds`` are bits per second by link;
    ``sample_ratio`` is the share of a dataset's files whose size is asked; the disks are
    watched for ``watch_seconds``.

    Errors: UsageError for a dataset that is not there, a named binary that is no nginx, a pid
            that is no nginx master, a speed for a link that is not there.
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
    for name in STANDING:
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
    """Where to look for a dataset: here, and in the mounts of an nginx that lives in others."""
    view = None if foreign is None else view_of(host, foreign)
    real = view.real_path(path) if isinstance(view, View) else None
    if not isinstance(view, View) or not isinstance(real, str):
        return [path]
    places = [path, view.outside(real)]
    return places[::-1] if nginx_first else places


def _read_dataset(
    host: Host, path: str, places: list[str], *, budget_seconds: float, sample_ratio: float
) -> Dataset:
    """The dataset at the first of the places where there is one."""
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
        gaps["/allocated_bytes"] = "the scan did not tell it"
    if dataset.bytes_error_ratio is None:
        gaps["/bytes_error_ratio"] = "too few files were asked"
    for field in ("ratio", "coverage_ratio", "error_ratio"):
        if getattr(dataset.residency, field) is None:
            gaps[f"/residency/{field}"] = reason
    return gaps


def seal_facts(
    facts: Facts, gaps: Gaps, *, default_reason: str = "the host does not tell"
) -> Facts:
    """The facts with ``unknown`` filled in and every text fit for UTF-8.

    Names of files and mounts are bytes; what is no UTF-8 in them is shown escaped.
    """
    nulls: list[str] = []
    built = _walk(msgspec.to_builtins(facts), "", nulls)
    built["unknown"] = [
        {"path": pointer, "reason": _fit(gaps.get(pointer, default_reason))}
        # What is no null but could not be read stands at the end: a list left empty, say.
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


__all__ = ["DATASET_BUDGET_SECONDS", "gather_facts", "seal_facts"]
