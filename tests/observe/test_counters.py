"""Counters of the kernel and of nginx, as text."""

import errno
import os
from collections import Counter
from pathlib import Path

import pytest

from nginx_tune.host.parse_proc import HostCpu, Throttling, parse_host_cpu, parse_throttling
from nginx_tune.observe import states
from nginx_tune.observe.parse_counters import (
    ThreadCpu,
    parse_diskstats,
    parse_load_average,
    parse_refaults,
    parse_schedstat,
    parse_stub_status,
    parse_swapped_in,
    parse_switches,
    parse_thread_cpu,
    parse_virtual_bytes,
)
from nginx_tune.observe.parse_sock_diag import parse_established
from nginx_tune.observe.states import share_states

DISKSTATS = """\
 259       0 nvme0n1 1000 5 16000 250 400 0 3200 90 2 700 340 0 0 0 0 12 3
   7       0 loop0 10 0 80 4 0 0 0 0 0 4 4
   8       0 short 1 2
"""


def test_diskstats_of_any_kernel() -> None:
    disks = parse_diskstats(DISKSTATS)
    assert set(disks) == {"nvme0n1", "loop0"}
    assert disks["nvme0n1"] == (1000, 16000 * 512, 250, 2, 700, 340, 400, 3200 * 512, 90)
    assert parse_diskstats(Path("/proc/diskstats").read_text()) is not None


def test_refaults_of_old_and_new_kernels() -> None:
    assert parse_refaults("workingset_refault_anon 1\nworkingset_refault_file 7\n") == 7
    assert parse_refaults("workingset_refault 9\n") == 9
    assert parse_refaults("nr_free_pages 9\n") is None


def test_scheduling_of_this_thread() -> None:
    found = parse_schedstat(Path("/proc/self/schedstat").read_text())
    assert found is not None
    assert found.cpu_seconds > 0
    assert parse_schedstat("a b c") is None
    assert parse_switches(Path("/proc/self/status").read_text()) is not None
    assert parse_switches("Name:\tnginx\n") is None


STATUS = """\
Active connections: 291 \nserver accepts handled requests
 16630948 16630940 31070465 \nReading: 6 Writing: 179 Waiting: 106 \n"""


def test_stub_status() -> None:
    assert parse_stub_status(STATUS) == (291, 16630948, 16630940, 31070465, 179)
    for other in ("", "<html>", "Active connections: x\n\n1 2 3\n", "Active connections: 1\n\n1 2"):
        assert parse_stub_status(other) is None


TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:46A5 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1
   1: 0100007F:46A5 0100007F:9C40 01 00000000:00000000 00:00000000 00000000    33        0 78 1
   2: 0100007F:9C40 0100007F:46A5 01 00000000:00000000 00:00000000 00000000     0        0 79 1
"""


def test_established_connections_of_a_port() -> None:
    assert parse_established(TCP, {0x46A5}) == {78}
    assert parse_established(TCP, set()) == set()


def test_the_error_of_a_share_comes_from_its_seconds() -> None:
    steady = share_states([Counter(D=50, S=50) for _ in range(10)])
    bursty = share_states([Counter(D=100 * (i % 2), S=100 - 100 * (i % 2)) for i in range(10)])
    assert steady.ratios["D"] == bursty.ratios["D"] == 0.5
    assert steady.error_in_d == 0.0
    assert bursty.error_in_d is not None
    assert bursty.error_in_d > 0.1
    assert share_states([Counter(), Counter()]).ratios == {}


def test_a_profiler_that_cannot_be_mapped_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOMEM, "no memory")

    descriptor = os.open(os.devnull, os.O_RDONLY)
    monkeypatch.setattr(states, "_perf_event_open", lambda *_: descriptor)
    monkeypatch.setattr(states.mmap, "mmap", refuse)
    with pytest.raises(OSError, match="no memory"):
        states._open(1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_quotas_of_both_versions() -> None:
    first = "nr_periods 120\nnr_throttled 30\nthrottled_time 2500000000\n"
    second = (
        "usage_usec 77\nuser_usec 7\nsystem_usec 70\n"
        "nr_periods 120\nnr_throttled 30\nthrottled_usec 2500000\nnr_bursts 0\nburst_usec 0\n"
    )
    assert parse_throttling(first) == parse_throttling(second) == Throttling(120, 30, 2.5)
    for none in ("", "usage_usec 5\nuser_usec 1\n", "nr_periods x\nnr_throttled 1\n"):
        assert parse_throttling(none) is None


def test_host_and_thread_cpu() -> None:
    text = "cpu  100 1 50 800 20 3 4 22 7 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    assert parse_host_cpu(text) == HostCpu(total=1000, idle=820, steal=22, iowait=20)
    assert parse_host_cpu("intr 5") is None
    assert parse_host_cpu(Path("/proc/stat").read_text()) is not None
    stat = "7 (a) b) R 1 1 1 0 -1 0 111 0 33 0 900 100 0 0 20 0 1 0 5 6 7"
    assert parse_thread_cpu(stat) == ThreadCpu(user=900, system=100, major_faults=33)
    assert parse_thread_cpu("7 (a) R 1") is None
    assert parse_swapped_in("pswpout 5\npswpin 17\n") == 17
    assert parse_swapped_in("pgpgin 3\n") is None


def test_load_average_and_address_space() -> None:
    assert parse_load_average("49.70 12.01 3.33 3/812 4711\n") == 49.7
    assert parse_load_average("") is None
    assert parse_load_average(Path("/proc/loadavg").read_text()) is not None
    status = "Name:\tVmSize\nVmPeak:\t  99 kB\nVmSize:\t   48 kB\nVmRSS:\t 3 kB\n"
    assert parse_virtual_bytes(status) == 48 << 10
    assert parse_virtual_bytes("Name:\tzombie\nState:\tZ (zombie)\n") is None
    assert (parse_virtual_bytes(Path("/proc/self/status").read_text()) or 0) > 1 << 20
