"""The bpftrace program that counts loop turns, and what held them; pure, text out.

Each thread has the moment at which it left epoll_wait (``@left``, 0 while it is there), the
moment at which it was taken off its CPU in a turn (``@off``), why (``@why``), and the moment at
which it was woken (``@woken``): off until woken is a wait for what it slept for, woken until it
runs is a wait for a CPU. ``@in_…`` are the waits of the turn that is under way.
"""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.observe.program_text import answer_marks, count_value
from nginx_tune.observe.turn_counts import WAITS, Wait

_STATES: dict[Wait, int] = {"blocked": 2, "stopped": 4 | 8, "asleep": 1}
"""Bits of ``prev_state``, as include/linux/sched.h reports them; without any it was preempted."""
_WHY = {wait: number for number, wait in enumerate(WAITS, 1)}


def turns_program(threads: Sequence[int], enters: Sequence[str]) -> str:
    """The program; thread ids are those of the initial namespace."""
    entering = ", ".join(f"tracepoint:syscalls:{name}" for name in enters)
    leaving = entering.replace("sys_enter", "sys_exit")
    known = " ".join(f"@main[(uint64){thread}] = (uint64)1;" for thread in threads)
    clear = " ".join(f"@in_{wait}[(uint64)tid] = (uint64)0;" for wait in WAITS)
    squares = "\n".join(
        f'  @squares["{wait}"] = sum($us * (@in_{wait}[(uint64)tid] / (uint64)1000));'
        for wait in WAITS
    )
    states = "\n".join(
        f"  if (args->prev_state & {bits}) {{ @why[(uint64)tid] = (uint64){_WHY[wait]}; }}"
        for wait, bits in _STATES.items()
    )
    slept = "\n".join(
        f"  if (@why[$on] == (uint64){_WHY[wait]}) {{ "
        f"@{wait}[$on] = sum($slept); @in_{wait}[$on] = @in_{wait}[$on] + $slept; }}"
        for wait in _STATES
    )
    return f"""
BEGIN {{ {known} @began = (uint64)nsecs; printf("ready\\n"); }}
{leaving} /@main[(uint64)tid]/ {{
  @left[(uint64)tid] = (uint64)nsecs; @seen[(uint64)tid] = (uint64)1; @off[(uint64)tid] = (uint64)0;
  {clear}
}}
{entering} /@left[(uint64)tid] || (@main[(uint64)tid] && !@seen[(uint64)tid])/ {{
  $since = @left[(uint64)tid];
  if (!$since) {{ $since = @began; @early[(uint64)tid] = (uint64)nsecs - $since; }}
  $ns = (uint64)nsecs - $since;
  @left[(uint64)tid] = (uint64)0;
  @seen[(uint64)tid] = (uint64)1;
{count_value("@values")}
  @turns[(uint64)tid] = count();
  @busy[(uint64)tid] = sum($ns);
  $us = $ns / (uint64)1000;
  @squares["all"] = sum($us * $us);
{squares}
}}
tracepoint:sched:sched_switch
/@left[(uint64)tid] || (@main[(uint64)tid] && !@seen[(uint64)tid])/ {{
  @off[(uint64)tid] = (uint64)nsecs;
  @woken[(uint64)tid] = (uint64)0;
  @why[(uint64)tid] = (uint64){_WHY["queued"]};
{states}
}}
tracepoint:sched:sched_wakeup /@off[(uint64)args->pid] && !@woken[(uint64)args->pid]/ {{
  @woken[(uint64)args->pid] = (uint64)nsecs;
}}
tracepoint:sched:sched_switch /@off[(uint64)args->next_pid]/ {{
  $on = (uint64)args->next_pid;
  $now = (uint64)nsecs;
  $woken = @woken[$on];
  if (!$woken) {{ $woken = $now; }}
  if (@why[$on] == (uint64){_WHY["queued"]}) {{ $woken = @off[$on]; }}
  $slept = $woken - @off[$on];
{slept}
  $waited = $now - $woken;
  @queued[$on] = sum($waited);
  @in_queued[$on] = @in_queued[$on] + $waited;
  @off[$on] = (uint64)0;
}}
{answer_marks(*PRINTED)}
"""


PRINTED = (
    "@began", "@values", "@turns", "@busy", "@squares", "@early", "@left", "@seen", "@off", "@why",
    "@woken",
    *(f"@{wait}" for wait in WAITS), *(f"@in_{wait}" for wait in WAITS),
)  # fmt: skip
WHY: dict[int, Wait] = {number: wait for wait, number in _WHY.items()}
