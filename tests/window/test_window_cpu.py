"""What a host's counters and its logs say over a window: its load, its iowait, its ports."""

import itertools
import math

import pytest
from tiers import REPEAT, dice, draws

from nginx_tune.host.door import Missing
from nginx_tune.host.parse_proc import HostCpu
from nginx_tune.observe.accounting import DelayReading
from nginx_tune.observe.parse_counters import parse_error_log
from nginx_tune.observe.window.moment import Moment, Subjects
from nginx_tune.observe.window.server import plan_server
from nginx_tune.observe.window.window import Window, plan_host_load, plan_iowait

_FIXED = 1 << 11
_FADES = 1884
"""FIXED_1 and EXP_1 of include/linux/sched/loadavg.h."""


def window(*moments: Moment) -> Window:
    return Window(Subjects(1, [2]), list(moments), Missing("not read"))


def moment(at: float, *, load: float | None = None, cpu: HostCpu | None = None) -> Moment:
    return Moment(at=at, delays=DelayReading(at, {}), load_average=load, host_cpu=cpu)


def kernels_load(load: float, tasks: int) -> float:
    """One step of calc_load(), every five seconds."""
    active, now = tasks * _FIXED, int(load * _FIXED)
    new = now * _FADES + active * (_FIXED - _FADES) + (_FIXED - 1 if active >= now else 0)
    return (new // _FIXED) / _FIXED


def test_the_load_that_an_average_goes_towards() -> None:
    for before, tasks, steps in itertools.product((0.0, 50.0, 173.0), (0, 1, 33, 200), (4, 6, 12)):
        load = before
        for _ in range(steps):
            load = kernels_load(load, tasks)
        seen = window(
            moment(0.0, load=round(before, 2)), moment(steps * 5.004, load=round(load, 2))
        )
        told = plan_host_load(seen)
        row = (before, tasks, steps)
        assert told is not None, row
        assert told == pytest.approx(tasks, abs=0.5 + 0.01 * abs(before - tasks)), row


def test_whenever_a_window_begins_the_load_rises_with_the_tasks() -> None:
    """In eight seconds the kernel counts once or twice: right on average, rough alone."""
    deal = dice("windows of a load")
    for _ in range(draws(200, 5000)):
        phase, before = deal.uniform(0, 5), deal.uniform(0, 10)
        told = []
        for tasks in (1, 25):
            load, at = before, phase
            while at < 8.0:
                load, at = kernels_load(load, tasks), at + 5.004
            told.append(plan_host_load(window(moment(0, load=before), moment(8, load=load))))
        assert told[0] is not None
        assert told[1] is not None
        assert told[1] > 2 * told[0] or told[0] > before / 4, (phase, before, REPEAT)


def test_a_window_without_a_count_tells_no_load() -> None:
    assert plan_host_load(window(moment(0, load=1.0), moment(5.0, load=1.0))) is None
    assert plan_host_load(window(moment(0), moment(60.0, load=1.0))) is None
    assert math.isclose(
        plan_host_load(window(moment(0, load=3.0), moment(9.0, load=3.0))) or 0.0, 3.0
    )


def test_iowait_is_a_share_of_all_cpus() -> None:
    before = HostCpu(total=1000, idle=500, steal=0, iowait=100)
    after = HostCpu(total=1200, idle=650, steal=0, iowait=223)
    assert plan_iowait(window(moment(0, cpu=before), moment(1, cpu=after))) == 0.615
    # The kernel takes some of it back where a CPU was woken elsewhere.
    assert plan_iowait(window(moment(0, cpu=after), moment(1, cpu=after))) is None
    less = after._replace(total=1300, iowait=200)
    assert plan_iowait(window(moment(0, cpu=after), moment(1, cpu=less))) == 0.0
    assert plan_iowait(window(moment(0), moment(1, cpu=less))) is None


def test_a_host_without_ipv6_lacks_an_address_and_no_port() -> None:
    """The kernel has one error for both (99): as for localhost in a container."""
    line = b"2026/11/20 14:23:40 [crit] 7#7: *4 connect() to [::1]:80 failed (99: Cannot assign "
    logs = parse_error_log([line + b"requested address) while connecting to upstream"] * 9)
    for has_ipv6, counted in ((True, (9, 0)), (False, (0, 9))):
        subjects = Subjects(1, [2], has_ipv6=has_ipv6)
        server, _ = plan_server(Window(subjects, [moment(0.0), moment(9.0)], logs))
        assert (server.ports_exhausted, server.upstream_failures) == counted
        (seen,) = server.log_messages
        assert (seen.id == "no-ipv6-address", seen.name) == (not has_ipv6, "[::1]:80")
