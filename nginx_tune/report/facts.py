"""Facts as one screen of text, with the random-read curves of disks."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from nginx_tune.decide.hindrances import find_hindrances
from nginx_tune.documents.facts import (
    Array,
    Cpu,
    Dataset,
    Disk,
    Facts,
    Limits,
    Link,
    Memory,
    PathStorage,
    Storage,
)
from nginx_tune.documents.facts_storage import Curve, CurvePoint, Sweep
from nginx_tune.documents.units import plural, speed_text
from nginx_tune.report.facts_nginx import listener_rows, nginx_lines
from nginx_tune.report.screen import Line, Screen, ScreenBlock, ScreenPart, Table
from nginx_tune.report.text import bytes_text, number_text, one_line, percent_text, seconds_text

_CONSUMERS = {
    "anonymous": "programs",
    "shared": "tmpfs and shared memory",
    "kernel": "the kernel",
    "huge_pages": "huge pages",
}
_SPARSE_RATIO = 0.9
_NEARLY_ALL = 0.995
_USUAL_MTUS = (1500, 65536)
"""The MTUs of Ethernet and of the loopback."""
_NO_LIMIT = 10**9
"""No limit in practice: systemd and large machines set fs.file-max far above this."""


_HOST_HEAD = """\
# This host in short, for --host FILE of nginx-tune. Every figure counts as declared and may be
# changed: inputs of decisions without an option are in [facts].

"""


def render_host_toml(facts: Facts) -> bytes:
    """A description of the host, as TOML, from which the same decisions follow."""
    import tomli_w  # noqa: PLC0415  # only for this format

    from nginx_tune.decide.describing import describe  # noqa: PLC0415

    tables = _without_defaults(msgspec.to_builtins(describe(facts)))
    del tables["schema"]
    return (_HOST_HEAD + tomli_w.dumps(tables)).encode()


def _without_defaults(value: Any) -> Any:
    """Tables as a person writes them, without nulls and empty values, and with whole numbers."""
    if isinstance(value, dict):
        kept = {key: _without_defaults(item) for key, item in value.items() if key != "facts"}
        found = {
            key: item
            for key, item in kept.items()
            if item not in (None, "", [], {}) and (key, item) != ("count", 1)
        }
        return {**found, "facts": value["facts"]} if value.get("facts") else found
    if isinstance(value, list):
        return [_without_defaults(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def facts_screen(facts: Facts) -> Screen:
    """A sentence on nginx and this host, then the parts of the host."""
    cpus = "?" if facts.cpu.effective is None else f"{facts.cpu.effective:g}"
    nginx = facts.nginx
    name = (
        f"{one_line(nginx.product)} {one_line(nginx.version or '')}" if nginx.product else "nginx"
    )
    memory = facts.memory
    said = (
        f"{name.strip()} has {cpus} CPUs here, {bytes_text(memory.total_bytes)} of memory, of "
        f"which the page cache can hold {bytes_text(memory.page_cache_limit_bytes)}, and "
        f"{_disk_count(facts)}."
    )
    return [[Line(said, "answer")], *facts_blocks(facts)]


def facts_blocks(facts: Facts) -> Screen:
    """The host, part by part."""
    unknown = len(facts.unknown)
    missing = f"{plural(unknown, 'value')} not known: -f json has the reasons"
    return [
        _machine(facts),
        _rows(f"paths     {_disk_count(facts)}", map(_path, facts.storage.paths)),
        _rows("arrays", map(_array, facts.storage.arrays)) if facts.storage.arrays else [],
        _rows("disks", map(_disk, facts.storage.disks)),
        *curve_blocks(facts.storage),
        _rows("links", map(_link, facts.network.links)),
        _listeners(facts),
        _rows("datasets", map(_dataset, facts.datasets)) if facts.datasets else [],
        _hindrances(facts),
        [Line(missing)] if unknown else [],
    ]


def _machine(facts: Facts) -> ScreenBlock:
    """Rows for kernel, CPU, memory, limits and nginx, with their names in the first column."""
    kernel = facts.kernel
    system = " ".join(filter(None, (kernel.system, kernel.release, kernel.machine)))
    said = [
        ("kernel", f"{system or 'not known'}{_features(kernel.features)}"),
        ("cpu", _cpu(facts.cpu, _reason(facts, "/cpu/quota_cpus"))),
        ("memory", _memory(facts.memory)),
        ("limits", _limits(facts.limits)),
        *(
            ("" if number else "nginx", line)
            for number, line in enumerate(nginx_lines(facts.nginx))
        ),
    ]
    # The names are padded: plain lines have one column for all values.
    return [Table([(name.ljust(8), one_line(text)) for name, text in said], has_head=False)]


def _rows(heading: str, rows: Iterable[Sequence[str]]) -> ScreenBlock:
    """The rows under a heading, without columns that are empty in all rows."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    filled = [number for number, column in enumerate(zip(*cells, strict=True)) if any(column)]
    kept = [[row[number] for number in filled] for row in cells]
    table = [Table(kept, indent=2, has_head=False)] if kept else []
    return [Line(heading, "heading"), *table]


def _disk_count(facts: Facts) -> str:
    count = facts.storage.independent_disk_count
    return plural(count, "independent disk") if count else "disks not known"


def _listeners(facts: Facts) -> ScreenBlock:
    if not facts.listeners:
        return []
    rows, more = listener_rows(facts)
    return [
        *_rows("listeners", rows),
        *([Line(f"and {more} more: -f json", indent=2)] if more else []),
    ]


def _hindrances(facts: Facts) -> ScreenBlock:
    found = find_hindrances(facts)
    if not found:
        return []
    lines = [
        line
        for entry in found
        for line in (
            Line(one_line(entry.seen), indent=2),
            Line(one_line(f"{entry.meaning}; {entry.remedy}"), indent=4),
        )
    ]
    return [Line("limits on nginx here", "heading"), *lines]


def _features(features: dict[str, bool | None]) -> str:
    has = ", ".join(name for name, there in features.items() if there)
    lacks = ", ".join(name for name, there in features.items() if there is False)
    return (f"; has {has}" if has else "") + (f"; no {lacks}" if lacks else "")


def _reason(facts: Facts, pointer: str) -> str:
    """The reason why a value is null; empty if it is not null."""
    return next((unknown.reason for unknown in facts.unknown if unknown.path == pointer), "")


def _cpu(cpu: Cpu, no_quota_reason: str) -> str:
    quota = "no quota" if no_quota_reason.startswith("none") else "quota not known"
    if cpu.quota_cpus is not None:
        quota = f"quota {cpu.quota_cpus:g}"
    text = f"{_count(cpu.online)} online, {_count(cpu.cpuset)} allowed, {quota}"
    effective = "?" if cpu.effective is None else f"{cpu.effective:g}"
    text = f"{text}: {effective} effective" + (f" ({cpu.model})" if cpu.model else "")
    if (cpu.threads_per_core or 1) > 1:
        text += f", {cpu.threads_per_core} threads a core"
    if cpu.auto_workers is not None and cpu.auto_workers != cpu.fitting_workers:
        text += f"; worker_processes auto gives {cpu.auto_workers}, {cpu.fitting_workers} fit"
        text += f" ({cpu.auto_workers_reason})" if cpu.auto_workers_reason else ""
    return text


def _memory(memory: Memory) -> str:
    limit = "no cgroup limit" if memory.cgroup_version else "cgroup limit not known"
    if memory.cgroup_limit_bytes is not None:
        limit = f"cgroup limit {bytes_text(memory.cgroup_limit_bytes)}"
        limit += f" of {memory.cgroup_limit_path}" if memory.cgroup_limit_path else ""
        if memory.cgroup_usage_bytes is not None:
            limit += f" ({bytes_text(memory.cgroup_usage_bytes)} are not file data)"
    arc = ""
    if memory.arc_limit_bytes is not None:
        arc = f"; the ARC of ZFS holds {bytes_text(memory.arc_bytes)}"
        arc += f" of at most {bytes_text(memory.arc_limit_bytes)}"
    held = ", ".join(
        f"{_CONSUMERS[name]} {bytes_text(size)}"
        for name, size in sorted(memory.consumers.items(), key=lambda item: -item[1])
        if name in _CONSUMERS and size * 20 >= (memory.total_bytes or 0)
    )
    arc += f"; not for the page cache: {held}" if held else ""
    if memory.page_cache_limit_bytes != memory.available_bytes and memory.page_cache_limit_reason:
        arc = f" ({memory.page_cache_limit_reason}){arc}"
    return (
        f"{bytes_text(memory.total_bytes)}, {bytes_text(memory.available_bytes)} available, "
        f"{limit}; the page cache can hold {bytes_text(memory.page_cache_limit_bytes)}" + arc
    )


_WHOSE = {"nginx": "nginx's", "unit": "nginx.service's", "reader": "this command's"}


def _limits(limits: Limits) -> str:
    soft, hard = _count(limits.nofile_soft), _count(limits.nofile_hard)
    whose = f" ({_WHOSE[limits.nofile_of]})" if limits.nofile_of else ""
    text = f"open files{whose} {soft} soft, {hard} hard, fs.nr_open {_count(limits.nr_open)}"
    if limits.file_max is not None and limits.file_max < _NO_LIMIT:
        text += f", {limits.file_max} for all processes"
    return text


def _path(path: PathStorage) -> Sequence[str]:
    stack = " → ".join(path.stack) or path.source or "?"
    leaves = "+".join(path.leaf_disks) or "not known"
    if leaves == stack:  # nothing lies between, so the disk is named once
        leaves = ""
    seen = "in the mounts of nginx" if path.seen_by_nginx else ""
    reason = "; ".join(filter(None, (seen, path.reason)))
    return path.path, path.filesystem or "?", stack, leaves, reason


def _array(array: Array) -> Sequence[str]:
    state = array.sync_action or "?"
    if array.sync_done_ratio is not None:
        state += f" {percent_text(array.sync_done_ratio, 2)}"
    if array.level in {"raid0", "linear"}:
        return array.name, array.level, f"{_count(array.members)} disks without redundancy", ""
    missing = "degraded state not known"
    if array.degraded is not None:
        missing = f"{array.degraded} of {_count(array.members)} missing"
    return array.name, array.level or "?", missing, state


def _disk(disk: Disk) -> Sequence[str]:
    return (
        disk.name,
        disk.class_,
        bytes_text(disk.size_bytes) if disk.size_bytes else "",
        _depth(disk),
        f"read-ahead {bytes_text(disk.read_ahead_bytes)}" if disk.read_ahead_bytes else "",
        "" if disk.utilisation_ratio is None else f"{percent_text(disk.utilisation_ratio, 2)} busy",
        disk.class_reason,
    )


def _depth(disk: Disk) -> str:
    queues = disk.hardware_queues or 1
    parts = [f"depth {disk.depth}"] if disk.depth else []
    if queues > 1 and disk.nr_requests:
        parts.append(f"{queues} queues of {disk.nr_requests}")
    if len(disk.paths) > 1:
        parts.append(f"by {len(disk.paths)} paths")
    return ", ".join(parts)


def _link(link: Link) -> Sequence[str]:
    speed = speed_text(link.speed_bits_per_second)
    queues = ""
    if link.queues is not None and link.kind == "physical":
        queues = f"queues {link.queues.rx} in, {link.queues.tx} out"
        queues += f" ({link.queues.rps} by RPS)" if link.queues.rps else ""
        queues += f" ({link.queues.xps} by XPS)" if link.queues.xps else ""
    return (
        link.name,
        " ".join(filter(None, (link.kind or "?", link.driver))),
        link.state or "?",
        speed,
        queues,
        link.qdisc if link.qdisc and link.qdisc != "noqueue" else "",
        f"mtu {link.mtu}" if link.mtu and link.mtu not in _USUAL_MTUS else "",
        link.speed_reason,
    )


def _dataset(dataset: Dataset) -> Sequence[str]:
    at_least = "" if dataset.complete else "at least "
    sizes = dataset.sizes
    residency = dataset.residency
    sampled = ""
    if dataset.bytes_error_ratio:
        sampled = f" ± {percent_text(dataset.bytes_error_ratio, 2)}"
    if dataset.sample_ratio < 1:
        sampled += f" (of {percent_text(dataset.sample_ratio, 2)} of the files)"
    held = "residency not known"
    if residency.ratio is not None:
        part = percent_text(residency.ratio, error=residency.error_ratio)
        held = f"{part} in the page cache ({residency.method})"
        if (residency.coverage_ratio or 1) < _NEARLY_ALL:
            held += f", measured for {percent_text(residency.coverage_ratio, 2)} of it"
        held += "" if residency.trusted else ", unreliable"
    return (
        dataset.path,
        f"{at_least}{number_text(dataset.files)} files",
        f"{at_least}{bytes_text(dataset.bytes)}{sampled}{_kept(dataset)}",
        f"half ≤ {bytes_text(sizes.p50_bytes)}, 99 % ≤ {bytes_text(sizes.p99_bytes)}, all ≤ "
        f"{bytes_text(sizes.max_bytes)}"
        if sizes
        else "",
        held,
        _left_out(dataset),
    )


def _left_out(dataset: Dataset) -> str:
    """A note on links, special files and mounts in the dataset, which are not counted."""
    found = (
        (dataset.symlinks, "symbolic link"),
        (dataset.hard_links, "further name"),
        (dataset.special_files, "special file"),
        (dataset.other_filesystems, "mount"),
    )
    texts = [plural(count, noun) for count, noun in found if count]
    return f"not counted: {', '.join(texts)}" if texts else ""


def _kept(dataset: Dataset) -> str:
    """The space that a sparse or compressed dataset takes on its disk, as text."""
    kept, size = dataset.allocated_bytes, dataset.bytes
    if kept is None or not size or kept >= _SPARSE_RATIO * size:
        return ""
    return f", {bytes_text(kept)} of it on the disk (sparse or compressed)"


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


_HEAD = ("depth", "reads/s", "±", "p50", "p99", "p99.9", "max", "outliers")
_NUMBERS = range(len(_HEAD))


def named_curves(storage: Storage) -> list[tuple[str, Curve]]:
    """Every curve, with the name of its disk, or of the disks that share it."""
    curves = [(one_line(disk.name), disk.curve) for disk in storage.disks if disk.curve is not None]
    return curves + [
        (one_line("+".join(curve.disks)), curve.curve) for curve in storage.shared_curves
    ]


def curve_blocks(storage: Storage) -> list[ScreenBlock]:
    """A block for every curve; empty if no disk was measured."""
    blocks = [_curve(name, curve) for name, curve in named_curves(storage)]
    cells = [
        cell
        for block in blocks
        for part in block
        if isinstance(part, Table)
        for row in part.rows
        for cell in row
    ]
    if "–" in cells:
        blocks.append([Line("–: fewer than 10 reads beyond the quantile", indent=2)])
    return blocks


def _curve(name: str, curve: Curve) -> ScreenBlock:
    source = f" ({one_line(curve.target)})" if curve.target else ""
    parts: list[ScreenPart] = [Line(f"reads     {name}, {curve.provenance}{source}", "heading")]
    if curve.sequential_bytes_per_second is not None:
        speed = bytes_text(curve.sequential_bytes_per_second)
        parts.append(Line(f"one sequential stream reads {speed}/s", indent=2))
    parts += _sweep(curve)
    if curve.small_reads is not None:
        parts += _sweep(curve.small_reads)
    return [*parts, *(Line(one_line(note), indent=2) for note in curve.notes)]


def _sweep(sweep: Sweep) -> ScreenBlock:
    knee = f"knee at depth {sweep.knee_depth}: " if sweep.knee_depth is not None else ""
    reason = one_line(f"{knee}{sweep.knee_reason}")
    said = f"random reads of {bytes_text(sweep.read_bytes)}" + (f": {reason}" if reason else "")
    table = Table([_HEAD, *map(_point, sweep.points)], right=_NUMBERS, indent=4)
    return [Line(said, indent=2), table]


def _point(point: CurvePoint) -> tuple[str, ...]:
    spread = "" if point.deviation_ratio is None else percent_text(point.deviation_ratio, 2)
    return (
        str(point.depth),
        number_text(point.reads_per_second),
        spread,
        *map(_seconds, (point.p50_seconds, point.p99_seconds, point.p999_seconds)),
        _seconds(point.max_seconds),
        "" if point.outliers is None else str(point.outliers),
    )


def _seconds(value: float | None) -> str:
    return "–" if value is None else seconds_text(value)
