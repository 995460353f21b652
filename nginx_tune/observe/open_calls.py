"""How often main threads call open() and rename(), and how long: what no thread pool offloads.

By tracefs alone, two events a call and no process stopped for them, so that counts are exact. A
call that finds its names in memory takes some microseconds; one that does not waits in the loop
for each directory and inode that has to be read. These reads are counted too, by an event that
the kernel tells in the thread that asks for them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

from nginx_tune.host.door import Missing
from nginx_tune.host.global_ids import read_global_ids
from nginx_tune.observe.parse_opens import NameCalls, OpenReader
from nginx_tune.observe.tracefs import TraceFs, TraceInstance, open_tracefs

_POLL_SECONDS = 0.05
_BUFFER_KIB = 2048
"""For each CPU: about 10,000 calls between two polls."""
_CALLS = ("openat", "open", "openat2", "rename", "renameat", "renameat2")
_READS = "block_bio_queue"


class OpenTracer:
    """Traces some threads, whose ids are those of the initial process namespace."""

    def __init__(self, threads: Sequence[int], tracefs: TraceFs) -> None:
        """Errors: OSError when it cannot be traced."""
        self._tracefs = tracefs
        self._instance = TraceInstance(tracefs)
        self._reader = OpenReader()
        self._rest = b""
        self._ended = threading.Event()
        try:
            self._instance.watch_calls(tracefs, threads, _CALLS, buffer_kib=_BUFFER_KIB)
            self._has_reads = bool(tracefs.events("block", _READS))
            if self._has_reads:
                self._instance.write(f"events/block/{_READS}/enable", "1")
        except OSError:
            self._instance.remove()
            raise
        self._thread = threading.Thread(target=self._run, daemon=True, name="open-calls")

    def start(self) -> None:
        """Begin to count."""
        self._instance.write("tracing_on", "1")
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            self._read()

    def _read(self) -> None:
        lines = (self._rest + self._instance.read()).split(b"\n")
        self._rest = lines.pop()
        self._reader.read([line.decode("ascii", "replace") for line in lines])

    def finish(self) -> NameCalls | Missing:
        """The calls; Missing when some were not seen."""
        with contextlib.suppress(OSError):
            self._instance.write("tracing_on", "0")
        self._stop_reading()
        self._read()
        calls = self._reader.finish(time.monotonic_ns(), has_reads=self._has_reads)
        self._remove()
        if self._reader.lost:
            return Missing(f"{self._reader.lost:,} events of open() were lost")
        return calls

    def kill(self) -> None:
        """End it at once; nothing was counted."""
        self._stop_reading()
        self._remove()

    def _remove(self) -> None:
        self._instance.remove()
        self._tracefs.close()

    def _stop_reading(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()


def start_open_tracing(pids: Sequence[int]) -> OpenTracer | Missing:
    """A tracer of the main threads of these processes, not started yet."""
    ids = read_global_ids(pids)
    tracefs = ids if isinstance(ids, Missing) else open_tracefs()
    if isinstance(ids, Missing) or isinstance(tracefs, Missing):
        return tracefs if isinstance(tracefs, Missing) else Missing("no ids")
    try:
        return OpenTracer(list(ids.values()), tracefs)
    except OSError as error:
        tracefs.close()
        return Missing(f"tracefs: {error.strerror or error}")
