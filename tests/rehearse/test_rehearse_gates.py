"""Gates on a rehearsal, its exit status, its phases and what people read of it."""

import contextlib
import re
from collections.abc import Sequence

import msgspec
import pytest

from nginx_tune.documents.measurement import ClassSecond, Measurement, SeriesPoint
from nginx_tune.documents.rehearsal import (
    FirstAnswer,
    HeldConnections,
    Phase,
    Rehearsal,
    RehearsedReload,
)
from nginx_tune.documents.verdict import GateResult
from nginx_tune.errors import ExitStatus, UsageError
from nginx_tune.measure.proof.histogram import Histogram, Layout, encode_histogram
from nginx_tune.measure.proof.rehearsal import (
    check_rehearsal_gates,
    judge_rehearsal,
    lasting_failures,
    rehearsal_status,
    split_phases,
    worst_outcome,
)
from nginx_tune.report.rehearsal import rehearsal_screen
from nginx_tune.report.screen import markdown, plain_text

TAKEN = RehearsedReload(
    manner="reload",
    outcome="taken",
    first_answers=[
        FirstAnswer(listener="a:80", seconds=0.05),
        FirstAnswer(listener="b:81", reason="refuses connections, as before"),
    ],
    drain_seconds=None,
    workers_left=1,
    watched_seconds=3.0,
    memory_peak_bytes=50 << 20,
    counters={"ListenOverflows": 3, "EstabResets": 1},
    requests=990,
    failed={"reset": 7, "refused": 3},
    phases=[Phase(name="during", requests=10, failed=10, p99_seconds=0.02)],
    held=[
        HeldConnections(kind="websocket", held=4, lost=1, kept=3, reasons={"cut off": 1}),
        HeldConnections(kind="idle", held=9, closed=9),
        HeldConnections(kind="keepalive", held=4, kept=4, reconnects=4, retried=2),
        HeldConnections(kind="upload", not_opened=4, reasons={"refused by limit_req": 4}),
    ],
    retried=1,
)


def test_a_gate_is_held_against_what_was_measured() -> None:
    table = [
        ("reload.failed == 0", 10, False),
        ("reload.failed.reset <= 7", 7, True),
        ("reload.failed.timeout == 0", 0, True),
        ("reload.lost < 1", 1, False),
        ("reload.lost.idle == 0", 0, True),
        ("reload.lost.download == 0", None, False),  # none is served
        ("reload.lost.upload == 0", None, False),  # none could be held
        ("reload.retried <= 2", 3, False),  # the load's and what held connections asked
        ("reload.first_answer <= 100ms", 0.05, True),
        ("reload.drain <= 3600s", None, False),  # it was not over
        ("reload.memory_peak <= 40MiB", 50 << 20, False),
        ("reload.listen_overflows == 0", 3, False),
        ("reload.listen_drops == 0", None, False),  # not counted
        ("reload.during.p99 <= 50ms", 0.02, True),
        ("reload.during.p50 <= 50ms", None, False),
        ("reload.during.failed <= 10", 10, True),
        ("reload_back.failed == 0", None, False),
    ]
    for gate, measured, passed in table:
        check_rehearsal_gates([gate], ["reload", "reload_back"])
        (found,) = judge_rehearsal([gate], [TAKEN])
        assert (found.measured, found.passed) == (measured, passed), gate
        assert passed or measured is not None or found.reason, gate


def test_a_gate_that_means_nothing_is_refused_before_anything_runs() -> None:
    taken = []
    for gate in (
        "upgrade.failed == 0", "reload.faild == 0", "reload.lost.visits == 0", "failed == 0",
        "reload.drain <= 10", "reload.memory_peak <= 5s", "reload.failed <= 5ms",
        "ratio(reload.failed) <= 1", "reload.during.mean <= 1ms", "reload <= 1",
    ):  # fmt: skip
        with contextlib.suppress(UsageError):
            check_rehearsal_gates([gate], ["reload", "reload_back"])
            taken.append(gate)
    assert taken == []


def test_the_status_says_what_it_came_to() -> None:
    refused = msgspec.structs.replace(TAKEN, outcome="refused")
    odd = msgspec.structs.replace(TAKEN, faults=["[alert] setsockopt() failed, ignored"])
    failed, unknown = (
        judge_rehearsal([gate], [TAKEN]) for gate in ("reload.lost == 0", "reload.drain <= 1s")
    )

    def status(
        reloads: list[RehearsedReload], gates: Sequence[GateResult] = (), **found: list[str]
    ) -> ExitStatus:
        return rehearsal_status(
            Rehearsal(conf_path="/n", reloads=reloads, gates=list(gates), **found)  # type: ignore[arg-type]
        )

    assert status([TAKEN]) == ExitStatus.OK
    assert status([TAKEN, refused]) == ExitStatus.FOUND
    assert status([odd]) == ExitStatus.FOUND
    assert status([TAKEN], failed) == ExitStatus.FOUND
    assert status([TAKEN], unknown) == ExitStatus.UNDECIDED
    assert status([TAKEN], [*failed, *unknown]) == ExitStatus.FOUND
    phases = [Phase(name="before", seconds=3, requests=360, max_seconds=3.0)]
    overloaded = msgspec.structs.replace(TAKEN, phases=phases)
    calm = msgspec.structs.replace(TAKEN, is_back=True)
    both = [overloaded, calm]
    assert status(both, judge_rehearsal(["reload.failed == 0"], both)) == ExitStatus.UNDECIDED
    assert status(both, judge_rehearsal(["reload_back.failed == 0"], both)) == ExitStatus.FOUND
    assert status([]) == ExitStatus.UNDECIDED
    assert status([TAKEN], unknown, refused_here=["no such directory"]) == ExitStatus.FOUND
    assert status([TAKEN], worse_answers=["/: OLD answers 200, NEW 503"]) == ExitStatus.FOUND
    told = {"other_answers": ["/api: 4 bytes from OLD"], "dropped": ["server_name b.test"]}
    assert status([TAKEN], **told) == ExitStatus.OK, "it may be what is meant"
    assert status([_with(after=(10, 40))]) == ExitStatus.FOUND


def test_a_server_without_an_answer_on_a_busy_machine_is_not_called_down() -> None:
    down = msgspec.structs.replace(TAKEN, outcome="down", workers_after=2, phases=[], faults=[])
    for change, is_sure in (
        ({"foreign_cpu_ratio": 0.1}, True),
        ({"foreign_cpu_ratio": 0.8}, False),
        ({"foreign_cpu_ratio": 0.8, "workers_after": 0}, True),
        ({"phases": [Phase(name="before", max_seconds=2.0)]}, False),
    ):
        found = Rehearsal(conf_path="/n", reloads=[msgspec.structs.replace(down, **change)])  # type: ignore[arg-type]
        wanted = ExitStatus.FOUND if is_sure else ExitStatus.UNDECIDED
        assert rehearsal_status(found) == wanted, change
        text = plain_text(rehearsal_screen(found))
        assert text.startswith("CANNOT TELL") == (not is_sure), change
        assert ("DOWN" in text) == is_sure, change


def _with(before: tuple[int, int] = (0, 100), after: tuple[int, int] = (0, 100)) -> RehearsedReload:
    """A change with failures, and requests in order, before it and when it is over."""
    phases = [
        Phase(name="before", failed=before[0], requests=before[1]),
        Phase(name="during", requests=100),
        Phase(name="after", failed=after[0], requests=after[1]),
    ]
    failed = {"status": before[0] + after[0]} if before[0] + after[0] else {}
    requests = 100 + before[1] + after[1]
    return RehearsedReload(
        manner="reload", outcome="taken", failed=failed, requests=requests, phases=phases
    )


def test_failures_that_last_are_told_apart_from_those_of_the_change() -> None:
    for before, after, lasts in (
        ((0, 100), (50, 50), True),
        ((0, 100), (3, 97), True),
        ((0, 100), (2, 98), False),  # the last ones of the change itself
        ((10, 90), (11, 89), False),  # as before
        ((10, 90), (15, 85), False),  # by chance
        ((10, 90), (40, 60), True),
        ((50, 50), (0, 100), False),  # the way back
        ((0, 0), (0, 0), False),
    ):
        row = (before, after)
        turn = _with(before, after)
        assert (lasting_failures(turn) is not None) == lasts, row
        found = Rehearsal(conf_path="/n", reloads=[turn])
        text = plain_text(rehearsal_screen(found))
        assert ("REQUESTS KEEP FAILING: " in text) == lasts, row
        assert ("nothing was lost" in text) == (not lasts and (after[0] == 0)), row
        as_before = before[0] > 0 and after[0] > 0 and not lasts
        assert ("no more requests failed than before" in text) == as_before, row
        assert (f"; {before[0]} failed before it already" in text) == (before[0] > 0), row
        refused = msgspec.structs.replace(turn, outcome="refused")
        assert lasting_failures(refused) is None, row
        phases = [msgspec.structs.replace(turn.phases[0], max_seconds=3.0), *turn.phases[1:]]
        busy = msgspec.structs.replace(turn, phases=phases)
        assert lasting_failures(busy) is None, "a busy machine"


def test_losses_under_an_overload_that_began_before_the_change_settle_nothing() -> None:
    """The same losses are the change's on a server that was calm before it."""
    gates = ["reload.failed == 0", "reload.before.max <= 1ms", "reload.failed <= 99"]
    behind = (
        "NOT SETTLED: nginx did not carry 200 requests/s even before the change "
        "(120/s were answered, the slowest after 3.00 s): use --rate 30\n"
    )
    failing = (
        "NOT SETTLED: even before the change a request waited 3.00 s, and 5 failed: use --rate 49\n"
    )
    for slowest, requests, failed_before, failed, lost, said in (
        (3.0, 360, 0, {"timeout": 70}, 0, behind),
        (3.0, 360, 0, {}, 2, behind),
        (3.0, 360, 0, {}, 0, ""),
        (0.2, 360, 0, {"timeout": 70}, 2, ""),
        (3.0, 595, 5, {"timeout": 70}, 0, failing),
        (3.0, 600, 0, {"timeout": 70}, 2, ""),  # one location is slow by itself
        (3.0, 535, 0, {"timeout": 70}, 2, ""),  # by chance
    ):
        row = (slowest, requests, failed_before, failed, lost)
        before = Phase(
            name="before", seconds=3, requests=requests, failed=failed_before, max_seconds=slowest
        )
        held = [HeldConnections(kind="idle", held=4, lost=lost)]
        turn = msgspec.structs.replace(
            TAKEN, rate_per_second=200.0, failed=failed, phases=[before], held=held
        )
        found = Rehearsal(conf_path="/n", rate_per_second=200.0, reloads=[turn])
        assert rehearsal_status(found) == (ExitStatus.UNDECIDED if said else 0), row
        text = plain_text(rehearsal_screen(found))
        assert text.startswith(said or "reload: taken"), row
        results = judge_rehearsal(gates, [turn])
        passed = [not failed, False, True]
        assert [one.passed for one in results] == passed, row
        is_unknown = [bool(failed and said), False, False]
        assert [one.measured is None for one in results] == is_unknown, row


def test_what_the_host_refuses_and_what_is_gone_is_the_answer() -> None:
    turn = msgspec.structs.replace(TAKEN, failed={}, phases=[], held=[], workers_left=0)
    quiet = Rehearsal(conf_path="/n", reloads=[turn])
    assert plain_text(rehearsal_screen(quiet)).startswith("reload: taken, nothing was lost\n")
    limited = msgspec.structs.replace(quiet, limited=["9 requests were answered 503"])
    assert rehearsal_status(limited) == 0, "the load is no crowd"
    gone = msgspec.structs.replace(quiet, dropped=["server_name b.test"])
    worse = msgspec.structs.replace(quiet, worse_answers=["/: OLD answers 200, NEW 503"])
    here = msgspec.structs.replace(quiet, refused_here=["/n:3: pid \x1b/a/b: mkdir -p /a"])
    for found, said in (
        (limited, "limited: 9 requests were answered 503"),
        (gone, "gone: server_name b.test"),
        (worse, "NO LONGER SERVED: /: OLD answers 200"),
        (here, "REFUSED ON THIS HOST: /n:3: pid \\x1b/a/b: mkdir -p /a"),
    ):
        text = plain_text(rehearsal_screen(found))
        assert said in text
        assert ("nothing was lost" in text) == (found is here)
    assert plain_text(rehearsal_screen(here)).startswith("REFUSED ON THIS HOST: ")
    assert plain_text(rehearsal_screen(worse)).startswith("NO LONGER SERVED: ")
    assert worst_outcome(here) == "refused"


def test_the_phases_hold_each_second_once() -> None:
    layout = Layout(unit_bits=0, half_bits=10)

    def point(second: int, values: dict[int, int]) -> SeriesPoint:
        counts = {layout.index_of(value): count for value, count in values.items()}
        text = encode_histogram(Histogram(layout, dict(sorted(counts.items()))))
        seen = ClassSecond(requests=10 * (second + 1), errors=second, histogram=text)
        return SeriesPoint(second=second, classes={"a": seen})

    series = [
        point(0, {1_000_000: 2000}),
        point(1, {1_000_000: 500, 900_000_000: 20}),
        point(2, {2_000_000: 300}),
        point(3, {1_000_000: 5}),
    ]
    found = split_phases(
        Measurement(started_unix_seconds=1000.0, series=series),
        changed_unix=1001.5,
        ended_unix=1002.5,
    )
    assert [(one.name, one.seconds, one.requests, one.failed) for one in found] == [
        ("before", 1, 10, 0), ("during", 2, 50, 3), ("after", 1, 40, 3),
    ]  # fmt: skip
    before, during, after = found
    assert before.p99_seconds == pytest.approx(0.001, rel=0.01)
    assert before.max_seconds == pytest.approx(0.001, rel=0.01)
    assert during.max_seconds == pytest.approx(0.9, rel=0.01)
    assert during.p50_seconds == pytest.approx(0.001, rel=0.01)
    assert during.p99_seconds is None, "eight samples beyond it"
    assert (after.p50_seconds, after.p99_seconds) == (None, None)


def test_people_read_the_outcome_first_and_nothing_steers_a_terminal() -> None:
    hostile = msgspec.structs.replace(TAKEN, outcome="refused", reason="[emerg] a\x1b[2Jb | c")
    found = Rehearsal(
        conf_path="/etc/n\x1b[31m.conf",
        files=["/x"],
        rate_per_second=200.0,
        reloads=[hostile, msgspec.structs.replace(TAKEN, is_back=True)],
        gates=judge_rehearsal(["reload_back.lost == 0"], [TAKEN]),
        notes=["no upload was held: \x07"],
    )
    text, page = plain_text(rehearsal_screen(found)), markdown(rehearsal_screen(found))
    assert re.search("upload lost +not tried: refused by limit_req", text)
    assert "\x1b" not in text + page
    assert "reload: REFUSED, the old generation still serves: [emerg] a\\x1b[2Jb | c" in text
    assert "reload back: taken, 10 of 1,000 requests failed and 1 held connection was lost" in text
    one = msgspec.structs.replace(found, reloads=[msgspec.structs.replace(TAKEN, workers_left=1)])
    left = "; 1 old worker is left after 3.00 s"
    said = f"{left}, for connections that were held open: harmless, and worker_shutdown_timeout"
    assert said in plain_text(rehearsal_screen(one))
    none = msgspec.structs.replace(found, reloads=[msgspec.structs.replace(TAKEN, held=[])])
    assert f"{left}\n" in plain_text(rehearsal_screen(none)), "nothing else is known"
    odd = msgspec.structs.replace(found, reloads=[msgspec.structs.replace(TAKEN, faults=["f"])])
    lines = markdown(rehearsal_screen(odd)).splitlines()
    row = next(line for line in lines if line.startswith("| outcome"))
    assert "taken" not in row, "the table contradicts the sentence"
    assert "FAIL  reload_back.lost == 0" in text
    assert text.startswith("reload: REFUSED")
    width = {line.count("|") - line.count("\\|") for line in page.splitlines() if line[:1] == "|"}
    assert width == {4}, "a table of three columns"
