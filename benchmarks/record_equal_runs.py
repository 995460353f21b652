"""Records equal runs of one configuration of a real nginx, which show the noise of this host.

    sudo python benchmarks/record_equal_runs.py [--pairs 20] [--duration 3] [-o FILE]

The same configuration is run as both variants, as in a scenario: nginx and the probe have priority
over other processes, each on separate CPUs if there are two. Of each run, the values of some
metrics, the flags and the seconds are kept; ``verdict_errors.py`` deals them out again.
"""

import argparse
import json
import os
import platform
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from nginx_tune.documents.lab import Lab
from nginx_tune.documents.loadplan import Target
from nginx_tune.documents.measurement import Measurement
from nginx_tune.experiment.experiment import Experiment, run_pairs
from nginx_tune.experiment.operations import MODULE_INSIDE, Conduct, Variant
from nginx_tune.experiment.session import Session
from nginx_tune.experiment.view import plan_places
from nginx_tune.host.live import LiveHost
from nginx_tune.measure.load.classes import ServedFile, default_classes, hot_urls, plan_load
from nginx_tune.measure.proof.metrics import find_metric
from nginx_tune.nginx.binary import read_nginx
from nginx_tune.nginx.lab.enclosure import HostNeeds
from nginx_tune.nginx.lab.sandbox import Sandbox

RECORDED = Path(__file__).resolve().parent.parent / "tests/proof/data/equal-blocks.json"
METRICS = [
    f"{name}.{tail}"
    for name in ("hot", "cold", "memory")
    for tail in ("requests_per_second", "mean", "p50", "p90", "p99", "ttfb.p99")
] + ["server.cpu_seconds_per_request"]
PORT = 18090
ERROR_LOG = "/var/log/nginx/error.log"
"""Debian builds nginx with standard error as its log, which no run can read."""

CONFIGURATION = """
user root;
worker_processes 1;
error_log {log};
events {{ worker_connections 512; }}
http {{
    access_log off;
    server {{
        listen 127.0.0.1:{port};
        root {root};
        location = /healthz {{ return 200 "ok"; }}
    }}
}}
"""


def main() -> None:
    """Make the runs and write their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--duration", type=float, default=3.0)
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("-o", "--output", type=Path, default=RECORDED)
    given = parser.parse_args()
    nginx, _ = read_nginx(LiveHost())
    if nginx.binary is None:
        sys.exit("nginx is not installed")
    with tempfile.TemporaryDirectory() as directory, Sandbox(MODULE_INSIDE) as sandbox:
        conf, root = _make_site(Path(directory))
        session = Session(
            sandbox,
            Lab(name="none"),
            binary=nginx.binary,
            covers=plan_places(nginx.flags),
            view=HostNeeds(shown=[directory]),
        )
        classes = default_classes()
        files = [ServedFile(f"/{file.name}", file.stat().st_size) for file in root.iterdir()]
        baseline, candidate = (
            Variant(
                name=name,
                conf_path=str(conf),
                error_log=ERROR_LOG,
                prime=hot_urls(classes, files),
                conduct=Conduct(ahead=True),
            )
            for name in ("baseline", "candidate")
        )
        target = Target(address="127.0.0.1", port=PORT)
        plan = plan_load(classes, files, target=target, memory_url="/healthz")
        experiment = Experiment(
            [baseline, candidate], {"baseline": plan, "candidate": plan}
        ).for_seconds(warmup=given.warmup, duration=given.duration)
        measurements = run_pairs(session, experiment, pairs=given.pairs, seed=1, progress=_say)
    head = {
        "host": f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}",
        "nginx": nginx.version,
        "warmup_seconds": given.warmup,
        "duration_seconds": given.duration,
    }
    given.output.write_text(_written(head, [_kept(run) for run in measurements]))


def _written(head: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    """JSON with a line for each run."""
    lines = ",\n".join(json.dumps(run) for run in runs)
    return f'{json.dumps(head)[:-1]}, "blocks": [\n{lines}\n]}}\n'


def _make_site(directory: Path) -> tuple[Path, Path]:
    root = directory / "www"
    root.mkdir(parents=True)
    directory.chmod(0o755)
    chance = random.Random(1)  # noqa: S311  # file contents
    for number in range(64):
        (root / f"file-{number}").write_bytes(chance.randbytes(100_000))
    conf = directory / "nginx.conf"
    conf.write_text(CONFIGURATION.format(root=root, port=PORT, log=ERROR_LOG))
    return conf, root


def _kept(run: Measurement) -> dict[str, Any]:
    return {
        "flags": run.flags,
        "values": {name: find_metric(name).read([run]).value for name in METRICS},
        "seconds": [
            {name: [one.requests, one.p50, one.p99, one.max] for name, one in point.classes.items()}
            for point in run.series
        ],
    }


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    main()
