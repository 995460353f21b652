"""The speed of audit beside nginx -t and gixy-ng on thousands of servers, and its growth.

    python benchmarks/audit_speed.py [--hosts 5000] [--runs 3]

gixy-ng is installed from PyPI into a temporary virtual environment. Both read the same file, in
turns, each as a whole process; peak memory is the kernel's figure (ru_maxrss). Then follow an
ordinary server (5 files, 300 lines) and the growth of time to ten times the hosts. ``nginx -t``
runs only if there is an nginx and the user is root: it creates the logs that the file names, here
in a separate file system.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import NamedTuple

SERVER = """server {{
    listen 80;
    server_name host{n}.example.org www.host{n}.example.org;
    root /srv/www/host{n};
    access_log /var/log/nginx/host{n}.log combined buffer=64k flush=5s;
    location / {{
        try_files $uri $uri/ /index.html;
    }}
    location /api/ {{
        proxy_pass http://app;
        proxy_set_header Host $host;
    }}
}}
"""
HEAD = """worker_processes auto;
events {{ worker_connections 4096; }}
http {{
    sendfile on;
    upstream app {{ server 127.0.0.1:8080; keepalive 32; }}
{include}
}}
"""


def write_flat(directory: Path, hosts: int) -> Path:
    """Write one file with this many servers."""
    path = directory / f"flat-{hosts}.conf"
    path.write_text(HEAD.format(include="".join(SERVER.format(n=n) for n in range(hosts))))
    return path


def write_ordinary(directory: Path) -> Path:
    """Write five files with about 300 lines in all."""
    folder = directory / "ordinary"
    folder.mkdir()
    for number in range(4):
        servers = "".join(SERVER.format(n=f"{number}-{n}") for n in range(6))
        (folder / f"site{number}.conf").write_text(servers)
    path = folder / "nginx.conf"
    path.write_text(HEAD.format(include="    include site*.conf;"))
    return path


class Cost(NamedTuple):
    """The cost of a process."""

    seconds: float
    cpu_seconds: float
    """CPU time of the process alone, which is more reliable than elapsed time on a shared machine.
    """
    mib: float


def run(command: list[str]) -> Cost:
    """The cost of a process, whatever its exit status."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def compare(commands: dict[str, list[str]], runs: int) -> dict[str, Cost]:
    """The median times and peak memory of each command, run in turns."""
    seen: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            seen[name].append(run(command))
    return {
        name: Cost(
            statistics.median(one.seconds for one in found),
            statistics.median(one.cpu_seconds for one in found),
            max(one.mib for one in found),
        )
        for name, found in seen.items()
    }


def nginx_test(conf: Path) -> dict[str, list[str]]:
    """The command ``nginx -t`` for a file, by its name; empty if it cannot be run."""
    nginx = shutil.which("nginx")
    if nginx is None or os.geteuid() != 0:
        return {}
    own = 'mount -t tmpfs none /var/log/nginx && ulimit -n 60000 && exec "$@"'
    return {"nginx -t": ["unshare", "-m", "sh", "-c", own, "sh", nginx, "-t", "-c", str(conf)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    ours = [sys.executable, "-m", "nginx_tune", "-q", "audit", "-f", "json", "--facts", "none"]
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        venv.create(directory / "venv", with_pip=True)
        tools = directory / "venv" / "bin"
        subprocess.run([tools / "pip", "install", "-q", "gixy-ng"], check=True)
        flat = write_flat(directory, options.hosts)
        print(f"{options.hosts} servers, {flat.stat().st_size / 1e6:.1f} MB, {options.runs} runs:")
        found = compare(
            {
                "nginx-tune": [*ours, str(flat)],
                "gixy-ng": [str(tools / "gixy"), str(flat)],
                **nginx_test(flat),
            },
            options.runs,
        )
        version = json.loads(
            subprocess.check_output([tools / "pip", "list", "--format", "json"], text=True)
        )
        peer = next(one["version"] for one in version if one["name"].lower() == "gixy-ng")
        for name, cost in found.items():
            label = f"{name} {peer}" if name == "gixy-ng" else name
            print(f"  {label:20} {_shown(cost)}")
        ours_cost, peer_cost = found["nginx-tune"], found["gixy-ng"]
        print(
            f"  ratio {peer_cost.seconds / ours_cost.seconds:.1f} by the clock, "
            f"{peer_cost.cpu_seconds / ours_cost.cpu_seconds:.1f} by CPU time"
        )
        if "nginx -t" in found:
            ratio = ours_cost.cpu_seconds / found["nginx -t"].cpu_seconds
            print(f"  {ratio:.2f} times the CPU time of nginx -t")
        ordinary = compare({"": [*ours, str(write_ordinary(directory))]}, 15)[""]
        print(f"an ordinary server (5 files):  {_shown(ordinary)}")
        print("growth:")
        for factor in (0.5, 1, 2, 4, 10):
            hosts = int(options.hosts * factor)
            path = write_flat(directory, hosts)
            cost = compare({"": [*ours, str(path)]}, options.runs)[""]
            each = 1e6 * cost.cpu_seconds / hosts
            print(f"  {hosts:6} servers {_shown(cost)} {each:6.0f} µs CPU each")


def _shown(cost: Cost) -> str:
    return f"{cost.seconds:7.2f} s {cost.cpu_seconds:7.2f} s CPU {cost.mib:5.0f} MiB"


if __name__ == "__main__":
    main()
