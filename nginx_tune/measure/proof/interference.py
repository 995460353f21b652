"""CPU time that neither the probe nor the server used: who else was at work.

Others' work makes latencies longer that are taken for the server's. It falls on both arms of a
comparison alike, so it degrades a measurement, and discards no block.
"""

from __future__ import annotations

import msgspec

from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.units import percent_text

MOST_FOREIGN_RATIO = 0.1
"""Share of the host's CPU time above which a result is degraded."""
_LEAST_WATCHED_RATIO = 0.8
"""Share of the measured time below which what was counted at the server is not of that time."""


def with_interference(measurement: Measurement, server_cpu_seconds: float | None) -> Measurement:
    """The measurement with the share of others, and a flag where that is too much.

    ``server_cpu_seconds`` is what the server used on the probe's host in the measured time: 0
    when it is on another host, None when it cannot be told (then nothing is judged).
    """
    generator = measurement.generator
    busy, everything = generator.host_busy_seconds, generator.host_cpu_seconds
    if server_cpu_seconds is None or busy is None or not everything:
        return measurement
    foreign = max(busy - generator.cpu_seconds - server_cpu_seconds, 0.0) / everything
    flags = list(measurement.flags)
    if foreign > MOST_FOREIGN_RATIO:
        flags.append(
            f"foreign_cpu: others than the probe and the server used {percent_text(foreign, 2)} of "
            "the host's CPU time"
        )
    return msgspec.structs.replace(
        measurement,
        generator=msgspec.structs.replace(generator, foreign_cpu_ratio=foreign),
        flags=flags,
    )


def with_late_watch(measurement: Measurement, watched_seconds: float) -> Measurement:
    """The measurement with a flag where the server was watched for too little of its time.

    A busy host can have the watch begin long after the probe's warm-up, or at its end: the CPU time
    and the turns that it then sees are those of a part, and the requests those of the whole. Unlike
    others' work this spoils one block alone, which is discarded for it.
    """
    measured = measurement.duration_seconds
    if watched_seconds >= _LEAST_WATCHED_RATIO * measured:
        return measurement
    flag = f"late_watch: the server was watched for {watched_seconds:.2f} s of {measured:.2f} s"
    return msgspec.structs.replace(measurement, flags=[*measurement.flags, flag])
