"""The first look at a host: facts, decisions and findings on one screen."""

import posixpath
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nginx_tune.documents.check import (
    CheckedHost,
    DiskGroup,
    FirstLook,
    NextStep,
    Switch,
    SwitchVerdict,
)
from nginx_tune.documents.decisions import Decision, DecisionId, Decisions
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.findings import Findings, Unparsed
from nginx_tune.documents.units import listed, number_text, plural, speed_text
from nginx_tune.documents.workload import ServedData
from nginx_tune.report.decisions import (
    OF_TREE,
    SWITCHES,
    clause,
    options_named,
    reads_unsettled,
    switch_word,
    with_inputs,
    with_tree,
)
from nginx_tune.report.screen import Line, Screen, ScreenBlock, Table
from nginx_tune.report.text import bytes_text, one_line

MOST_FINDINGS = 3
MOST_UNPARSED = 3

_STATES: dict[str, SwitchVerdict] = {
    "measure": "measure",
    "on": "on",
    "off": "off",
    "stays off": "off",
    "as it is": "off",
}
_VERDICTS: dict[str, SwitchVerdict] = {
    "enable": "on",
    "disable": "off",
    "not_applicable": "off",
    "raise": "set",
    "lower": "set",
    "set": "set",
    "keep": "default",
    "not_enough_evidence": "measure",
}


def make_check(
    facts: Facts,
    *,
    conf_path: str | None,
    data: ServedData,
    decided: Decisions,
    held: Decisions | None,
    findings: Findings | None,
    options: Sequence[str] = (),
    is_live: bool = True,
) -> FirstLook:
    """The document of a first look.

    ``data`` is the served data, as counted, learnt or declared. ``held`` has the
    decisions of ``decided`` as changes to the configuration; None without a configuration.
    ``options`` name the inputs of this look, for the next commands. ``is_live`` is true if the
    facts were read from this host now.
    """
    host = _host(facts, data)
    changed = {decision.id for decision in held.decisions if decision.settings} if held else set()
    by_id = {decision.id: decision for decision in decided.decisions}
    held_by_id = {decision.id: decision for decision in held.decisions} if held else {}
    switches = [
        _switch(name, by_id[id_], held_by_id.get(id_))
        for id_, name in SWITCHES.items()
        if id_ in by_id
    ]
    found = findings.findings if findings else []
    unparsed = findings.files_unparsed if findings else []
    unread = len(findings.unread) + len(unparsed) if findings else 0
    settling = [] if unparsed else _settling(by_id, switches, conf_path, options, is_live=is_live)
    if not is_live:
        settling = [replace(step, reason=f"on that host, {step.reason}") for step in settling]
    first = _first(conf_path, changed, findings)
    # Read times decide most: while they are unknown, the plan comes last.
    is_urgent = any(reads_unsettled(by_id[switch.decision]) for switch in switches)
    if settling and (first is None or (is_urgent and not _is_audit(first))):
        last = [] if first is None else [first]
        first, *settling = [
            *settling,
            *(replace(step, command=with_inputs(step.command, options)) for step in last),
        ]
    if first is None:
        first = NextStep(
            command="nginx-tune observe", reason="watch the server under its own traffic"
        )
    live = ["--facts", "live"] if is_live and _is_audit(first) and "--facts" not in options else []
    return FirstLook(
        conf_path=conf_path,
        headline="" if unparsed else decided.headline,
        binding="" if unparsed else decided.binding,
        host=host,
        switches=[] if unparsed else switches,
        findings=found[:MOST_FINDINGS],
        findings_by_severity=dict(Counter(finding.severity for finding in found)),
        files_not_read=unread,
        files_unparsed=unparsed,
        next_command=with_inputs(first.command, [*options, *live]),
        next_reason=first.reason,
        also=settling,
    )


def _host(facts: Facts, data: ServedData) -> CheckedHost:
    groups = Counter(
        (disk.class_, disk.size_bytes, disk.curve is not None) for disk in facts.storage.disks
    )
    rates: dict[tuple[str, int | None], list[float]] = {}
    for disk in facts.storage.disks:
        if disk.curve is not None and disk.curve.points:
            best = max(point.reads_per_second for point in disk.curve.points)
            rates.setdefault((disk.class_, disk.size_bytes), []).append(best)
    up = [link for link in facts.network.links if link.kind == "physical" and link.state == "up"]
    speeds = [link.speed_bits_per_second or 0 for link in up]
    nginx, kernel = facts.nginx, facts.kernel
    return CheckedHost(
        cpus=facts.cpu.effective,
        page_cache_bytes=facts.memory.page_cache_limit_bytes,
        data_bytes=data.bytes or None,
        short_log_bytes=data.short_log_bytes,
        data_is_lower_bound=data.provenance == "measured"
        and not all(dataset.complete for dataset in facts.datasets),
        disks=[
            DiskGroup(
                count=count,
                class_name=name,
                size_bytes=size,
                measured=measured,
                reads_per_second=min(rates.get((name, size), ()), default=None)
                if measured
                else None,
            )
            for (name, size, measured), count in groups.items()
        ],
        link_bits_per_second=max(speeds, default=0) or None,
        kernel=" ".join(filter(None, (kernel.system, kernel.release))),
        nginx=f"{nginx.product} {nginx.version or ''}".strip() if nginx.product else "",
        nginx_has_threads="--with-threads" in nginx.flags if nginx.product else None,
    )


def _switch(name: str, decided: Decision, held: Decision | None) -> Switch:
    """The state that a switch gets, with the words of ``recommend``."""
    shown = held or decided
    changes = bool(shown.settings or shown.host_settings)
    word = switch_word(shown, changes=changes)
    verdict, value = _STATES.get(word, "set"), ""
    if shown.summary.startswith("Already so"):
        verdict = _VERDICTS[decided.verdict]
    elif word == "as it is":
        verdict = "default" if decided.id == "sendfile-max-chunk" else "off"
    if verdict == "set":
        value = next((" ".join(setting.args) for setting in decided.settings), "")
        value = word if changes else value
    return Switch(
        name=name,  # type: ignore[arg-type]  # of SWITCHES
        decision=decided.id,
        verdict=verdict,
        value=value,
        differs=held is not None and changes and verdict != "measure",
        why=clause(shown.summary),
    )


def _first(
    conf_path: str | None, changed: set[DecisionId], findings: Findings | None
) -> NextStep | None:
    """The next step, if findings or changes call for one; None without either."""
    if conf_path is None or findings is None:
        return NextStep(
            command="nginx-tune generate", reason="no configuration was found: write one"
        )
    conf = f" {shlex.quote(conf_path)}"
    reason = ""
    if findings.files_unparsed:
        reason = "once nginx -t accepts it"
    elif findings.unread:
        reason = "see every finding, and what was not read"
    elif any(finding.severity == "error" for finding in findings.findings):
        reason = "see every finding with its fix"
    elif changed:
        names = f": {listed(sorted(changed))}" if len(changed) <= _MOST_CHANGES_NAMED else ""
        return NextStep(
            command=f"nginx-tune plan{conf}",
            reason=f"see {plural(len(changed), 'change')} as a diff{names}",
        )
    elif findings.findings:
        reason = "see every finding with its fix"
    return NextStep(command=f"nginx-tune audit{conf}", reason=reason) if reason else None


def _is_audit(step: NextStep) -> bool:
    return step.command.startswith("nginx-tune audit")


_MOST_CHANGES_NAMED = 3
"""Maximum number of changes that the next command's reason names."""
_RESULTS = {"facts.json": "--facts", "workload.json": "--workload"}
"""The files that settling commands write, with the options that read them."""


def _settling(
    by_id: Mapping[DecisionId, Decision],
    switches: Sequence[Switch],
    conf_path: str | None,
    options: Sequence[str],
    *,
    is_live: bool,
) -> list[NextStep]:
    """The commands that settle the switches that a measurement could flip, without repetition.

    ``learn`` reads logs in the format of a live configuration. The ``check`` that follows keeps
    the configuration, and the facts and the workload of ``options``.
    """
    names: dict[str, list[str]] = {}
    for switch in switches:
        decision = by_id[switch.decision]
        is_open = switch.verdict == "measure" or reads_unsettled(decision)
        if is_open and decision.next_command:
            command = decision.next_command
            if conf_path and (is_live or not command.startswith("nginx-tune learn ")):
                command = with_tree(command, conf_path, options)
            names.setdefault(command, []).append(switch.name)
    steps = []
    for command, settled in names.items():
        result = command.rpartition(" ")[2]
        then = ""
        if result in _RESULTS:
            kept = options_named(options, {*_RESULTS.values(), *OF_TREE} - {_RESULTS[result]})
            conf = [conf_path] if conf_path else []
            then = f", then check {shlex.join([*conf, *kept, _RESULTS[result], result])}"
        steps.append(NextStep(command=command, reason=f"settle {listed(settled)}{then}"))
    return steps


def check_screen(check: FirstLook) -> Screen:
    """The screen: the bottleneck, host, switches, findings, and the next command.

    Files that cannot be parsed stand in place of the bottleneck and the switches.
    """
    first = [line for line in (check.headline, check.binding) if line]
    first += [_unparsed(file) for file in check.files_unparsed[:MOST_UNPARSED]]
    more = len(check.files_unparsed) - MOST_UNPARSED
    if more > 0:
        first.append(f"{plural(more, 'more file')} cannot be parsed")
    return [
        [Line(one_line(line), "answer") for line in first],
        [Table(_host_rows(check.host), has_head=False)],
        *([[Table(rows, has_head=False)]] if (rows := _switch_rows(check.switches)) else []),
        _findings(check),
        _next_lines(check),
    ]


def _unparsed(file: Unparsed) -> str:
    place = f"{file.file}:{file.line}" if file.line else file.file
    return f"{place}: cannot be parsed: {file.reason}"


def _next_lines(check: FirstLook) -> ScreenBlock:
    first = NextStep(command=check.next_command, reason=check.next_reason)
    return [
        Line(f"Next ({step.reason}): {one_line(step.command)}", "answer")
        for step in (first, *check.also)
    ]


def _host_rows(host: CheckedHost) -> list[tuple[str, str]]:
    cpus = "CPUs not known"
    if host.cpus is not None:
        cpus = f"{host.cpus:g} CPU{'' if host.cpus == 1 else 's'}"
    data = "data not known"
    if host.data_bytes is not None:
        bound = "at least " if host.data_is_lower_bound else ""
        data = f"{bound}{bytes_text(host.data_bytes)} of data"
        if host.short_log_bytes is not None:
            data += f", {bytes_text(host.short_log_bytes)} of it in a log of less than a day"
    threads = {True: ", with threads", False: ", without threads", None: ""}
    nginx = host.nginx or "no nginx found"
    kernel = host.kernel or "kernel not known"
    return [
        ("memory", f"page cache up to {bytes_text(host.page_cache_bytes)}, {data}"),
        ("disks", ", ".join(map(_disks, host.disks)) or "not known"),
        ("link", f"{_speed(host.link_bits_per_second)}, {cpus}"),
        ("nginx", one_line(f"{nginx}{threads[host.nginx_has_threads]}, {kernel}")),
    ]


def _speed(bits_per_second: int | None) -> str:
    return "speed not known" if bits_per_second is None else speed_text(bits_per_second)


def _disks(group: DiskGroup) -> str:
    count = f"{group.count} × " if group.count > 1 else ""
    size = f" of {bytes_text(group.size_bytes)}" if group.size_bytes else ""
    rate = ", not measured"
    if group.measured:
        reads = group.reads_per_second
        each = " each" if group.count > 1 else ""
        rate = ", measured" if reads is None else f", {number_text(reads)} reads/s{each}"
    return f"{count}{one_line(group.class_name)}{size}{rate}"


def _switch_rows(switches: Sequence[Switch]) -> list[tuple[str, str, str, str]]:
    return [
        (
            switch.name,
            switch.value if switch.verdict == "set" else switch.verdict,
            "change" if switch.differs else "",
            one_line(switch.why),
        )
        for switch in switches
    ]


def _findings(check: FirstLook) -> ScreenBlock:
    if check.conf_path is None:
        return [Line("No configuration was named or found, so none was audited.", "warning")]
    counts = check.findings_by_severity
    said = ", ".join(
        plural(counts[name], name) if name in {"error", "warning"} else f"{counts[name]} {name}"
        for name in ("error", "warning", "advice", "info")
        if counts.get(name)
    )
    lines: list[Line | Table] = [Line(f"{one_line(check.conf_path)}: {said or 'no findings'}")]
    if check.files_not_read:
        lines.append(Line(f"{plural(check.files_not_read, 'file')} not read", "warning", indent=2))
    beside = f"{posixpath.dirname(check.conf_path)}/"
    rows = [
        (
            finding.severity,
            f"{one_line(finding.file.removeprefix(beside))}:{finding.line}",
            one_line(finding.message),
        )
        for finding in check.findings
    ]
    return [*lines, *([Table(rows, indent=2, has_head=False)] if rows else [])]
