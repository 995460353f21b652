"""How long tasks wait in the queues of thread pools, by probes on functions that nginx exports.

A pool's queue is first in, first out, and everything happens under the mutex that a pool begins
with, so its address names the pool: the main thread signals the condition and unlocks when it
has put a task there, a pool thread unlocks when it has taken one, and waits on the condition
when there is none. Then every earlier task has been taken, which is where counting starts.

Every call costs the process a trap of about a microsecond, three or four for a task, so it is
done only when asked for, and not for long.

Source: ngx_thread_task_post and ngx_thread_pool_cycle (ngx_thread_pool.c), the same from 1.7.11.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from nginx_tune.host.door import Missing
from nginx_tune.host.global_ids import read_global_ids
from nginx_tune.observe.bpftrace import Program, missing_bpftrace
from nginx_tune.observe.parse_bpftrace import MarkReading, value_counts
from nginx_tune.observe.program_text import answer_marks, count_value
from nginx_tune.observe.tracefs import open_tracefs

MOST_SECONDS = 10.0


class QueueWaits(NamedTuple):
    """Tasks by the nanoseconds that they waited."""

    values: Counter[int]
    posted: int
    seconds: float


class QueueWaitTracer:
    """Traces the queues of the workers' pools until it is finished."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._program.mark()
        self.ends = time.monotonic() + MOST_SECONDS

    @property
    def pid(self) -> int:
        """Of the tracer."""
        return self._program.pid

    def finish(self) -> QueueWaits | Missing:
        """The waits; Missing when there is nothing to tell them from."""
        self._program.mark()
        first, *others = self._program.finish()
        last = next((reading for reading in reversed(others) if reading is not None), None)
        if first is None or last is None:
            return Missing("bpftrace ended before it could be asked")
        return judge_readings(first, last)

    def kill(self) -> None:
        """End it at once."""
        self._program.kill()


def judge_readings(first: MarkReading, last: MarkReading) -> QueueWaits | Missing:
    """The waits between two readings."""
    waits = value_counts(last)
    posted = last.maps.get("@posts", {}).get("", 0) - first.maps.get("@posts", {}).get("", 0)
    if waits:
        return QueueWaits(waits, posted, last.at_seconds - first.at_seconds)
    if posted:
        return Missing(
            f"{posted:,} tasks were posted and the queue never ran empty: "
            "which of them a thread took cannot be told"
        )
    return Missing("no task was posted, or this build of nginx calls other functions")


def start_queue_wait(worker: int, workers: Sequence[int]) -> QueueWaitTracer | Missing:
    """Trace the pools of some workers of one master; ``worker`` names the program they run."""
    missing = missing_bpftrace()
    if missing is not None:
        return missing
    ids = read_global_ids(workers)
    tracefs = ids if isinstance(ids, Missing) else open_tracefs()
    if isinstance(ids, Missing) or isinstance(tracefs, Missing):
        return tracefs if isinstance(tracefs, Missing) else Missing("no ids")
    try:
        if not (tracefs.root / "uprobe_events").exists():
            return Missing("the kernel has no uprobes (CONFIG_UPROBE_EVENTS)")
        return QueueWaitTracer(
            Program(_program(f"/proc/{worker}/exe", list(ids.values())), tracefs)
        )
    except OSError as error:
        return Missing(str(error))
    finally:
        tracefs.close()


def _program(binary: str, workers: Sequence[int]) -> str:
    """The program; the ids of the workers are those of the initial namespace."""
    known = " ".join(f"@main[(uint64){worker}] = (uint64)1;" for worker in workers)
    pool = "(uint64)pid, arg0"
    return f"""
BEGIN {{ {known} printf("ready\\n"); }}
uprobe:{binary}:ngx_thread_cond_signal /@main[(uint64)tid]/ {{ @posting[(uint64)tid] = (uint64)1; }}
uprobe:{binary}:ngx_thread_mutex_unlock /@posting[(uint64)tid]/ {{
  @posting[(uint64)tid] = (uint64)0;
  @posts = count();
  @posted[{pool}] = @posted[{pool}] + (uint64)1;
  if (@synced[{pool}]) {{ @at[{pool}, @posted[{pool}] & (uint64)0xffff] = (uint64)nsecs; }}
}}
uprobe:{binary}:ngx_thread_mutex_unlock
/pid != tid && @main[(uint64)pid] && @synced[{pool}] && @posted[{pool}] > @taken[{pool}]/ {{
  @taken[{pool}] = @taken[{pool}] + (uint64)1;
  $ns = (uint64)nsecs - @at[{pool}, @taken[{pool}] & (uint64)0xffff];
  if (@at[{pool}, @taken[{pool}] & (uint64)0xffff]) {{
{count_value("@values")}
  }}
  delete(@at[{pool}, @taken[{pool}] & (uint64)0xffff]);
}}
uprobe:{binary}:ngx_thread_cond_wait /pid != tid && @main[(uint64)pid]/ {{
  @taken[(uint64)pid, arg1] = @posted[(uint64)pid, arg1];
  @synced[(uint64)pid, arg1] = (uint64)1;
}}
{answer_marks("@values", "@posts")}
"""
