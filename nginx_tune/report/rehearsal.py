"""A rehearsal as text: its outcome, a table with a column for each change, and notes."""

from collections.abc import Callable, Sequence

from nginx_tune.documents.rehearsal import HeldConnections, Phase, Rehearsal, RehearsedReload
from nginx_tune.documents.units import plural
from nginx_tune.measure.proof.rehearsal import (
    Lasting,
    fell_behind,
    is_unsettled,
    is_unsure,
    last_answer,
    lasting_failures,
    losses,
    reload_name,
    sent_again,
)
from nginx_tune.report.screen import Line, Screen, Table
from nginx_tune.report.text import bytes_text, number_text, percent_text, plain, seconds_text

_NOTHING = "–"
_MOST_FAULTS = 3
_MOST_GONE = 12
_SPARE_FACTOR = 4
"""The share of an overloaded server's rate that a next rehearsal should try, as a divisor."""
_NOTE = "note: "
_EFFECTS = {"refused": "a reload is refused", "loses": "a reload loses", "needs": "needs"}
_OUTCOMES = {"taken": "taken", "refused": "REFUSED", "down": "DOWN"}


def rehearsal_screen(rehearsal: Rehearsal) -> Screen:
    """The losses, the gates, the changes side by side, then the circumstances."""
    sentences = _sentences(rehearsal) or ["no reload finished"]
    rows = _rows(rehearsal.reloads)
    table = Table(rows, right=range(1, len(rehearsal.reloads) + 1))
    gates = [
        ("pass" if passed else "FAIL", plain(expression), plain(reason))
        for expression, passed, reason in _gates(rehearsal)
    ]
    details = [
        Line(text, "note" if text.startswith(_NOTE) else "text", 2) for text in _details(rehearsal)
    ]
    return [
        [Line(text, "answer") for text in sentences],
        [Line("gates", "heading"), Table(gates, indent=2, has_head=False)] if gates else [],
        [table] if rehearsal.reloads else [],
        [Line("details", "heading"), *details] if details else [],
        [Line(text) for text in _head(rehearsal)],
    ]


def _head(rehearsal: Rehearsal) -> list[str]:
    count = len(rehearsal.files)
    files = "no file changes" if not count else "1 file changes" if count == 1 else (
        f"{count} files change"
    )  # fmt: skip
    program = f"nginx {plain(rehearsal.nginx_version)}"
    if rehearsal.new_nginx_binary:
        program += f", then {plain(rehearsal.new_nginx_version or rehearsal.new_nginx_binary)}"
    lab = "" if rehearsal.lab == "none" else f"; lab {plain(rehearsal.lab)}"
    lines = [f"{plain(rehearsal.conf_path)}: {files}; {program}{lab}"]
    if rehearsal.reloads:
        rate = number_text(rehearsal.rate_per_second)
        held = ", ".join(f"{clients.held} {clients.kind}" for clients in rehearsal.reloads[0].held)
        lines.append(f"load: {rate} requests/s; held connections: {held or 'none'}")
    return lines


def _sentences(rehearsal: Rehearsal) -> list[str]:
    """Sentences on refusals to expect on this host, lost services, and the cost of each change."""
    unsure = [reload for reload in rehearsal.reloads if is_unsure(reload)]
    lines = [f"CANNOT TELL, the machine was too busy: {_busy(reload)}" for reload in unsure[:1]]
    lines += [_unsettled(one) for one in rehearsal.reloads if is_unsettled(one)][:1]
    lines += [f"REFUSED ON THIS HOST: {plain(text)}" for text in rehearsal.refused_here]
    lines += [f"NO LONGER SERVED: {plain(text)}" for text in rehearsal.worse_answers]
    gone = [
        *(f"gone: {plain(text)}" for text in rehearsal.dropped),
        *(f"answers otherwise: {plain(text)}" for text in rehearsal.other_answers),
    ]
    is_alike = not (gone or rehearsal.worse_answers or rehearsal.limited)
    sandbox = (
        ("in the sandbox, which replaces what this host lacks: ") if rehearsal.refused_here else ""
    )
    lines += [sandbox + _sentence(reload, is_alike=is_alike) for reload in rehearsal.reloads]
    lines += [f"limited: {plain(text)}" for text in rehearsal.limited]
    lines += gone[:_MOST_GONE]
    if len(gone) > _MOST_GONE:
        lines.append(
            f"and {len(gone) - _MOST_GONE} more that are gone or answer differently: -f json"
        )
    if rehearsal.interrupted:
        lines.append("interrupted: only completed changes follow")
    return lines


def _sentence(one: RehearsedReload, *, is_alike: bool) -> str:
    name = reload_name(one).replace("_", " ")
    if one.outcome == "refused":
        return f"{name}: REFUSED, the old generation still serves: {plain(one.reason)}"
    if one.outcome == "down":
        doubt = "no answer in time" if is_unsure(one) else "DOWN, nobody serves"
        return f"{name}: {doubt}: {plain(one.reason)}"
    lasting, found = lasting_failures(one), losses(one)
    before = next((item for item in one.phases if item.name == "before"), Phase(name="before"))
    beyond = " beyond the share before it" if before.failed else ""
    lost = []
    if found.beyond:
        lost.append(f"{found.beyond:,} of {found.requests:,} requests failed{beyond}")
    if found.held:
        was = "was" if found.held == 1 else "were"
        lost.append(f"{plural(found.held, 'held connection')} {was} lost")
    whole = "nothing was lost" if is_alike and lasting is None else "the change itself lost nothing"
    if found.failed:
        whole = "no more requests failed than before"
    said = " and ".join(lost) if lost else whole
    said += ", under an overload that began before it" if is_unsettled(one) else ""
    said += f"; {before.failed:,} failed before it already" if before.failed else ""
    said += _lasting(lasting)
    left = _left(one)
    if one.faults:
        return f"{name}: accepted, but NOT AS WRITTEN: {plain(one.faults[0])}; {said}{left}"
    return f"{name}: taken, {said}{left}"


def _left(one: RehearsedReload) -> str:
    """The old workers that remain; open connections, which keep them, are a harmless reason."""
    if not one.workers_left:
        return ""
    verb = "is" if one.workers_left == 1 else "are"
    why = "for connections that were held open: harmless, and worker_shutdown_timeout limits it"
    return (
        f"; {plural(one.workers_left, 'old worker')} {verb} left after "
        f"{seconds_text(one.watched_seconds)}"
        + (f", {why}" if any(item.kept for item in one.held) else "")
    )


def _unsettled(one: RehearsedReload) -> str:
    before = next(item for item in one.phases if item.name == "before")
    carried = before.requests / max(1, before.seconds)
    slowest = _seconds(before.max_seconds)
    why = (
        f"nginx did not carry {number_text(one.rate_per_second)} requests/s even before the change "
        f"({carried:,.0f}/s were answered, the slowest after {slowest})"
        if fell_behind(one)
        else f"even before the change a request waited {slowest}, and {before.failed:,} failed"
    )
    return f"NOT SETTLED: {why}: use --rate {max(1, int(carried / _SPARE_FACTOR))}"


def _busy(one: RehearsedReload) -> str:
    parts = []
    if one.foreign_cpu_ratio is not None:
        used = percent_text(one.foreign_cpu_ratio, 2)
        parts.append(f"others used {used} of its CPU time")
    if longest := _of(one, "before", lambda phase: phase.max_seconds):
        parts.append(f"a request waited {seconds_text(longest)} before the change")
    return f"{' and '.join(parts)}; rehearse again when it is quiet"


def _outcome(one: RehearsedReload) -> str:
    """The outcome as a table cell, never more favourable than the sentence."""
    if one.outcome == "taken" and one.faults:
        return "NOT AS WRITTEN"
    if is_unsure(one):
        return "CANNOT TELL"
    if is_unsettled(one):
        return "NOT SETTLED"
    return _OUTCOMES[one.outcome]


def _lasting(found: Lasting | None) -> str:
    if found is None:
        return ""
    before = f"{found.failed_before:,} of {found.requests_before:,} before it"
    return (
        f"; and REQUESTS KEEP FAILING: {found.failed:,} of {found.requests:,} when it was over, "
        f"{before}"
    )


def _rows(reloads: Sequence[RehearsedReload]) -> list[list[str]]:
    def row(name: str, value: Callable[[RehearsedReload], str]) -> list[str]:
        return [name, *map(value, reloads)]

    rows = [
        row("", lambda reload: reload_name(reload).replace("_", " ")),
        row("outcome", _outcome),
        row("all listeners answered after", lambda reload: _seconds(last_answer(reload))),
        row("drained after", _drained),
        row("requests failed", lambda reload: number_text(sum(reload.failed.values()))),
        row("requests unanswered at the end", lambda reload: number_text(reload.unanswered)),
        row("requests sent again", lambda reload: number_text(sent_again(reload))),
    ]
    kinds = dict.fromkeys(item.kind for reload in reloads for item in reload.held)
    rows += [row(f"{kind} lost", lambda one, kind=kind: _lost(one, kind)) for kind in kinds]  # type: ignore[misc]
    for phase in ("before", "during", "after"):
        for name, value in _LATENCIES:
            rows.append(
                row(
                    f"{name} {phase}",
                    lambda one, phase=phase, value=value: _seconds(_of(one, phase, value)),  # type: ignore[misc]
                )
            )
    rows += [
        row("memory before", lambda reload: _bytes(reload.memory_before_bytes)),
        row("memory peak", lambda reload: _bytes(reload.memory_peak_bytes)),
        row("listen overflows, drops", _listen_losses),
        row("log lines, warn and worse", lambda reload: number_text(_worse_lines(reload))),
    ]
    return rows


_LATENCIES: tuple[tuple[str, Callable[[Phase], float | None]], ...] = (
    ("p50", lambda phase: phase.p50_seconds),
    ("p99", lambda phase: phase.p99_seconds),
    ("max", lambda phase: phase.max_seconds),
)


def _of(one: RehearsedReload, name: str, value: Callable[[Phase], float | None]) -> float | None:
    phase = next((item for item in one.phases if item.name == name), None)
    return None if phase is None else value(phase)


def _seconds(value: float | None) -> str:
    return _NOTHING if value is None else seconds_text(value)


def _bytes(value: int | None) -> str:
    return _NOTHING if value is None else bytes_text(value)


def _drained(one: RehearsedReload) -> str:
    if one.drain_seconds is not None:
        return seconds_text(one.drain_seconds)
    if one.outcome == "refused":
        return _NOTHING
    return f"> {seconds_text(one.watched_seconds)}"


def _lost(one: RehearsedReload, kind: str) -> str:
    item = next((item for item in one.held if item.kind == kind), None)
    if item is None:
        return _NOTHING
    if not item.held:
        return f"not tried: {plain(next(iter(item.reasons), 'none was open at the change'))}"
    return f"{item.lost} of {item.held}"


def _listen_losses(one: RehearsedReload) -> str:
    found = [one.counters.get(name) for name in ("ListenOverflows", "ListenDrops")]
    return ", ".join(_NOTHING if value is None else str(value) for value in found)


def _worse_lines(one: RehearsedReload) -> int:
    levels = ("warn", "error", "crit", "alert", "emerg")
    return sum(one.log_lines.get(level, 0) for level in levels)


def _details(rehearsal: Rehearsal) -> list[str]:
    lines = [
        f"predicted: {_EFFECTS[warning.effect]}: {plain(warning.text)}"
        for warning in rehearsal.warnings
    ]
    for reload in rehearsal.reloads:
        name = reload_name(reload).replace("_", " ")
        lines += [f"{name}: {line}" for line in _details_of(reload)]
    return [*lines, *(f"{_NOTE}{plain(note)}" for note in rehearsal.notes)]


def _details_of(one: RehearsedReload) -> list[str]:
    answers = [
        f"{plain(item.listener)} {_answer(item.seconds, item.reason, is_seen=item.is_seen)}"
        for item in one.first_answers
    ]
    lines = [f"first answers: {', '.join(answers)}"] if answers else []
    if one.failed:
        kinds = ", ".join(f"{count} {plain(kind)}" for kind, count in sorted(one.failed.items()))
        phases = ", ".join(f"{item.failed} {item.name}" for item in one.phases if item.failed)
        lines.append(f"failed requests: {kinds} ({phases or 'at the end'})")
    lines += [_held(item) for item in one.held]
    counted = [f"{name} {value}" for name, value in sorted(one.counters.items()) if value]
    lines += [f"the kernel counted {', '.join(counted)}"] if counted else []
    lines += [f"nginx also reported: {plain(fault)}" for fault in one.faults[:_MOST_FAULTS]]
    lines += [f"seen before the change too: {plain(line)}" for line in one.faults_before]
    lines += [f"log: {plain(line)}" for line in one.log_examples]
    doubts: dict[str, str] = {}
    for flag in one.flags:
        word, _, sentence = flag.partition(": ")
        doubts.setdefault(word, plain(sentence or word))
    said = "; ".join(doubts.values())
    lines += [f"the load's figures are doubtful: {said}"] if doubts else []
    return lines


def _answer(seconds: float | None, reason: str, *, is_seen: bool) -> str:
    if seconds is None:
        return f"none: {plain(reason)}"
    return seconds_text(seconds) + ("" if is_seen else " (by an unknown worker)")


def _held(item: HeldConnections) -> str:
    counts = {
        "lost": item.lost,
        "closed with no request in progress": item.closed,
        "finished": item.finished,
        "open at the end": item.kept,
        "opened again": item.reconnects,
        "with a request sent again": item.retried,
        "not opened": item.not_opened,
        "lost before": item.lost_before,
    }
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    why = "; ".join(f"{plain(reason)} ({count})" for reason, count in sorted(item.reasons.items()))
    return f"{item.held} {item.kind}: {said or 'nothing'}" + (f": {why}" if why else "")


def _gates(rehearsal: Rehearsal) -> list[tuple[str, bool, str]]:
    return [
        (
            gate.expression,
            gate.passed,
            gate.reason or f"measured {number_text(gate.measured or 0.0)}",
        )
        for gate in rehearsal.gates
    ]
