"""The growth of the load probe's memory: its resident size over minutes.

    python benchmarks/probe_memory.py [--minutes 30] [--rate 2000] [--hlog FILE]

Two classes load a server of known behaviour (``tests/probe/ground_truth.py``), one of them with
stalls, while a histogram log is written. Samples VmRSS once a second and fits a line through the
samples of the second half: by then every counter in use has its memory. The goals are a size below
20 MB and a slope below 1 MB per hour; otherwise the exit status is 1.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from nginx_tune.documents.base import encode
from nginx_tune.documents.loadplan import Arrivals, Caps
from nginx_tune.measure.load.probe import find_probe

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "probe"))
from truth import ground_truth, truth_plan

MOST_BYTES = 20e6
MOST_BYTES_AN_HOUR = 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=2000.0)
    parser.add_argument("--hlog", default="/dev/null", help="write the histogram log there")
    options = parser.parse_args()
    seconds = options.minutes * 60
    with ground_truth("--stall", 0.2, "--every", 5.0) as server, tempfile.TemporaryFile() as given:
        plan = truth_plan(
            server.port, duration_seconds=seconds, rate=options.rate, kind="poisson",
            caps=Caps(seconds=seconds + 60),
        )  # fmt: skip
        closed = msgspec.structs.replace(
            plan.classes[0],
            name="users",
            arrivals=Arrivals(kind="closed", users=4, think_seconds=0.01),
        )
        plan = msgspec.structs.replace(plan, classes=[*plan.classes, closed])
        given.write(encode(plan))
        given.seek(0)
        command = [find_probe(), "--hlog", options.hlog]
        with subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE) as process:
            samples = watch(process, seconds)
            output, _ = process.communicate()
    result = msgspec.json.decode(output)
    requests = sum(item["requests"] for item in result["classes"].values())
    return report(samples, requests, result["generator"]["max_rss_bytes"])


def watch(process: subprocess.Popen[bytes], seconds: float) -> list[tuple[float, float]]:
    """Time and resident bytes, once a second."""
    samples: list[tuple[float, float]] = []
    begun = time.monotonic()
    while time.monotonic() - begun < seconds and process.poll() is None:
        time.sleep(1.0)
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        samples.append((time.monotonic() - begun, pages * 4096.0))
    return samples


def report(samples: list[tuple[float, float]], requests: int, peak: float) -> int:
    settled = samples[len(samples) // 2 :]
    line = statistics.linear_regression([t for t, _ in settled], [size for _, size in settled])
    an_hour = line.slope * 3600
    print(f"{requests:,} requests, {len(samples)} samples")
    first, last = samples[0][1] / 1e6, samples[-1][1] / 1e6
    print(f"resident at the start {first:.2f} MB, at the end {last:.2f} MB")
    told = samples[:: max(len(samples) // 10, 1)]
    print("MB over time:", " ".join(f"{size / 1e6:.2f}" for _, size in told))
    print(f"peak {peak / 1e6:.2f} MB (aim {MOST_BYTES / 1e6:.0f} MB)")
    print(f"slope {an_hour / 1e6:+.3f} MB an hour (aim {MOST_BYTES_AN_HOUR / 1e6:.0f})")
    return 0 if peak < MOST_BYTES and an_hour < MOST_BYTES_AN_HOUR else 1


if __name__ == "__main__":
    sys.exit(main())
