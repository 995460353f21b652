"""The overhead of a Dask cluster on the loopback address, beyond the work of its workers.

    cd probes && cargo build --release --example access_log && cd ..
    python benchmarks/dask_engine.py [--logs N] [--lines N] [--workers N]

Compressed logs are put on an S3 server (moto) on the loopback address. They are learnt once by a
cluster of single-threaded worker processes, and once by one `nginx-tune learn` over all logs.
Prints a Markdown table. The overhead is the time from the start of the first task to the end of the
last sum, divided by the time of all tasks per worker. The two results must have the same bytes.
"""

import argparse
import gzip
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nginx_tune.documents.learning import LearnPlan
from nginx_tune.observe.access_logs import LogFiles, read_logs
from nginx_tune.observe.kept_partials import KeptLogs, LearnJob
from nginx_tune.observe.log_configuration import choose_format
from nginx_tune.observe.object_storage import find_logs

FORMAT = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
    '"$http_referer" "$http_user_agent" $msec $request_time $connection $connection_requests'
)
MAKER = Path(
    os.environ.get("ACCESS_LOG_MAKER")
    or Path(__file__).parent.parent / "probes/target/release/examples/access_log"
)

SERVER = """
import threading
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
threading.Event().wait()
"""


def fill(logs: int, lines: int) -> None:
    import s3fs  # noqa: PLC0415  # an extra, as in measure

    storage = s3fs.S3FileSystem()
    storage.mkdir("logs")
    for seed in range(logs):
        made = subprocess.run(
            [MAKER, str(lines), "1000000", "0.8", str(seed)], stdout=subprocess.PIPE, check=True
        )
        storage.pipe_file(f"logs/11/edge{seed}.log.gz", gzip.compress(made.stdout, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--logs", type=int, default=24)
    parser.add_argument("--lines", type=int, default=400_000)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    if not MAKER.exists():
        sys.exit("first: cd probes && cargo build --release --example access_log")
    with tempfile.TemporaryDirectory() as scratch:
        measure(asked, scratch)


def measure(asked: argparse.Namespace, scratch: str) -> None:
    from distributed import Client, LocalCluster  # noqa: PLC0415

    from nginx_tune.observe.dask_engine import learn_by_dask  # noqa: PLC0415

    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert server.stdout is not None  # noqa: S101  # it is a pipe
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(server.stdout.readline())}",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        fill(asked.logs, asked.lines)
        plan = LearnPlan(format=choose_format(FORMAT, None, []), key="5a" * 16)
        found = find_logs(["s3://logs/11/*.gz"])
        start, cpu = time.perf_counter(), cpu_seconds()
        whole = read_logs(LogFiles(found, plan.format), plan)
        alone, cpu_alone = time.perf_counter() - start, cpu_seconds() - cpu
        cpu = cpu_seconds()
        job = LearnJob(plan, None, None, "s3://logs/kept")
        kept = KeptLogs(job, found, tell=print, on_progress=lambda _: None)
        with (
            LocalCluster(
                n_workers=asked.workers, threads_per_worker=1, memory_limit=0,
                dashboard_address="127.0.0.1:0", local_directory=scratch,
            ) as cluster,
            Client(cluster) as watching,
        ):  # fmt: skip
            begun = time.time()
            watching.get_task_stream()  # from now on
            start = time.perf_counter()
            merged = learn_by_dask(kept, cluster.scheduler_address)
            seconds, ended = time.perf_counter() - start, time.time()
            stream = watching.get_task_stream(start=begun, stop=ended + 1)
        spans = [
            (span["start"], span["stop"])
            for task in stream
            for span in task["startstops"]
            if span["action"] == "compute"
        ]
        cpu_dask = cpu_seconds() - cpu
    finally:
        server.kill()
        server.wait()
    if bytes(merged.learnt.raw_tally) != bytes(whole.raw_tally):
        sys.exit("the sum is not that of one run")
    busy = sum(stop - begin for begin, stop in spans) / asked.workers
    last = max(stop for _, stop in spans)
    span = last - min(begin for begin, _ in spans)
    print("| what | s | CPU s |\n|---|--:|--:|")
    print(f"| one run over all {asked.logs} logs | {alone:.1f} | {cpu_alone:.1f} |")
    print(f"| {len(spans)} tasks, summed, over {asked.workers} workers | {busy:.1f} | |")
    print(f"| first task's start to last task's end | {span:.1f} ({span / busy - 1:+.1%}) | |")
    print(f"| the last sum, in this process | {ended - last:.1f} | |")
    print(f"| in all | {seconds:.1f} ({seconds / busy - 1:+.1%}) | {cpu_dask:.1f} |")


def cpu_seconds() -> float:
    """CPU time of this process and of the children that it has waited for; not of the S3 server."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
