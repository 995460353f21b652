"""Applies that are killed, or whose disk fails, at each call that changes something.

    sudo python benchmarks/apply_kills.py [--calls FROM TO] [--behind KIND...] [--step N] [--seed N]

Each run is the command ``nginx-tune apply`` on a real nginx: two files are edited and one is new,
each time with other bytes. With ``--calls`` it is killed before each system call that changes
something (strace's fault injection), for the calls with numbers from FROM to TO. With ``--behind``
a fault follows each call: a kill, a full or read-only disk of the tree or of the journal, or
immutable files. Then the recovery of the next boot runs (``rollback --recover``), and in half of
the runs a ``rollback`` of the kept change. The conditions that must hold are in ``killing/lot.py``;
if one does not hold, the tool ends with exit 1. ``apply_faults.py`` does the same at random
moments.
"""

import argparse
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

for _place in ("benchmarks", "tests", "tests/apply"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / _place))

from killing.blows import fault_of, struck_at, traced  # noqa: E402
from killing.lot import Lot, WrongError, lot_of  # noqa: E402

TRACED = ("renameat2", "fsync", "unlink", "unlinkat", "mkdir", "fchown", "fchmod", "ftruncate",
          "utimensat", "setxattr", "fsetxattr", "pidfd_send_signal", "write")  # fmt: skip
KINDS = ("kill", "full-tree", "full-journal", "read-only-tree", "read-only-journal", "immutable")
_MOST_CALLS = 60
"""Bound on the calls of a run with a fault; later calls have none."""


def _nothing() -> None:
    """Repair nothing."""


def kill_at_calls(lot: Lot, between: tuple[int, int]) -> Counter[str]:
    """Kill runs before each system call that changes something, between two numbers of calls."""
    lot.one(traced(lot, "-e", f"trace={','.join(TRACED)}"), _nothing)
    log = (lot.site.root / "strace").read_text()
    counted = Counter(re.findall(r"(?m)^(\w+)\(", log))
    moments = [
        (name, when) for name, many in sorted(counted.items()) for when in range(1, many + 1)
    ]
    seen: Counter[str] = Counter({"calls in all": len(moments)})
    for name, when in moments[slice(*between)]:
        inject = f"inject={name}:signal=KILL:when={when}"
        one = lot.one(traced(lot, "-e", f"trace={name}", "-e", inject), _nothing)
        how = "ended" if one.status == 0 else "killed"
        seen[f"{how} at {one.phase}, files {one.tree} -> {one.end}"] += 1
    return seen


def strike_at_calls(lot: Lot, draw: random.Random, kind: str, step: int) -> Counter[str]:
    """Cause the fault after each call, or after every ``step`` calls."""
    seen: Counter[str] = Counter()
    fault = fault_of(kind, lot.site.root)
    try:
        for call in range(1 + draw.randrange(step), _MOST_CALLS, step):
            one = lot.one(struck_at(lot, call, fault), fault.mend)
            line = one.said.strip().splitlines()[:1]
            seen[f"exit {one.status}, files {one.tree} -> {one.end}: {_plain(line)}"] += 1
    finally:
        fault.mend()
    return seen


def _plain(lines: Sequence[str]) -> str:
    return re.sub(r"/\S*/|[0-9a-f]{6,}", "…", lines[0])[:150] if lines else ""


def main() -> int:
    """Make the requested runs, and print a line for each kind of outcome."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nginx", default="/usr/sbin/nginx")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--calls", nargs=2, type=int, metavar=("FROM", "TO"))
    parser.add_argument("--behind", nargs="*", default=[], choices=KINDS)
    parser.add_argument("--step", type=int, default=1)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"seed {given.seed}", flush=True)
    draw = random.Random(given.seed)  # noqa: S311  # to be drawn again
    try:
        if given.calls:
            with lot_of(given.nginx, draw) as lot:
                _tell("killed before each call", kill_at_calls(lot, tuple(given.calls)))
        for kind in given.behind:
            with lot_of(given.nginx, draw, mounts=kind not in ("kill", "immutable")) as lot:
                _tell(f"{kind} behind each call", strike_at_calls(lot, draw, kind, given.step))
    except WrongError as error:
        print(f"WRONG: {error}")
        return 1
    return 0


def _tell(what: str, seen: Counter[str]) -> None:
    print(what)
    for how, many in sorted(seen.items()):
        print(f"{many:5}  {how}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
