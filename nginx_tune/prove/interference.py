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
