"""Text that our bpftrace programs share: answers to marks, counters; pure."""

from __future__ import annotations

from nginx_tune.observe.turn_counts import HALF_BITS


def answer_marks(*maps: str) -> str:
    """The probes that print some maps at every mark, and end the program.

    Nothing may delete keys of these maps: a key that goes while it is printed is an error.
    """
    printing = " ".join(f"print({name});" for name in maps)
    return f"""
tracepoint:syscalls:sys_enter_getpgid /args->pid >= FIRST_MARK && args->pid <= LAST_MARK/ {{
  printf("mark %d %llu\\n", args->pid, nsecs); {printing} printf("done\\n");
}}
tracepoint:syscalls:sys_enter_getpgid /args->pid == END_MARK/ {{ exit(); }}
"""


def count_value(name: str) -> str:
    """Statements that count ``$ns`` in a map.

    The counter is computed as HdrHistogram computes it: the position of the highest bit, and as
    many bits below it as the precision asks for.
    """
    halves = "\n".join(
        f"  if ($rest >= (uint64){1 << bits}) {{ $shift = $shift + (uint64){bits}; "
        f"$rest = $rest >> (uint64){bits}; }}"
        for bits in (16, 8, 4, 2, 1)
    )
    return f"""
  $rest = $ns >> (uint64){HALF_BITS + 1};
  $shift = (uint64)0;
{halves}
  $shift = $shift + $rest;
  {name}[($shift << (uint64){HALF_BITS}) + ($ns >> $shift)] = count();"""
