"""Requests that fail while changes are applied and rolled back, compared with plain reloads.

    sudo python benchmarks/apply_losses.py [--seconds N] [--rounds N] NGINX...

Each nginx serves small answers on kept connections (closed loop) and on a new connection for each
request. Three cases take turns of N seconds: no change, plain reloads (the file replaced, SIGHUP),
and ``apply`` with its rollback, which are two reloads. The tool prints a table in Markdown. NGINX
is the program itself: apply runs the program of the running master, so a wrapper does not work.
"""

import argparse
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from nginx_tune.change.apply.examine import Proposed
from nginx_tune.change.apply.journal import State
from nginx_tune.change.apply.run import ApplyOptions, apply_change
from nginx_tune.change.apply.undo import roll_back
from nginx_tune.documents.loadplan import Arrivals, Caps, LoadClass, LoadPlan, Paths, Permit, Target
from nginx_tune.documents.measurement import Measurement
from nginx_tune.host.live import LiveHost
from nginx_tune.measure.load.probe import run_probe

CONF = """
user root; worker_processes 2;
pid {dir}/nginx.pid; error_log {dir}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; keepalive_requests 1000000;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fcgi;
    uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
    server {{ listen 127.0.0.1:{port} backlog=4096; include site; }}
}}
"""
SITES = ('return 200 "one";\n', 'return 200 "two";\n')
PAUSE_SECONDS = 0.4
"""The pause between reloads; old workers have exited by then."""


class Server:
    """A running nginx of a version."""

    def __init__(self, binary: str, directory: Path) -> None:
        self.binary, self.directory = binary, directory
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.conf, self.site = directory / "nginx.conf", directory / "site"
        self.conf.write_text(CONF.format(dir=directory, port=self.port))
        self.site.write_text(SITES[0])
        self.state = State(directory / "state")
        subprocess.run([binary, "-p", directory, "-c", self.conf], check=True, capture_output=True)
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                time.sleep(0.01)
            else:
                return
        raise SystemExit(f"{binary} does not come up")

    def nothing(self) -> int:
        """No reload."""
        time.sleep(PAUSE_SECONDS)
        return 0

    def plain(self) -> int:
        """Change the file and change it back, with two plain reloads."""
        for text in (SITES[1], SITES[0]):
            new = self.directory / "site.new"
            new.write_text(text)
            new.replace(self.site)
            os.kill(int((self.directory / "nginx.pid").read_text()), signal.SIGHUP)
            time.sleep(PAUSE_SECONDS)
        return 2

    def apply(self) -> int:
        """Change the file by apply and change it back by rollback."""
        before, after = (text.encode() for text in SITES)
        sums = [hashlib.sha256(text).hexdigest() for text in (before, after)]
        wish = ApplyOptions(
            conf_path=str(self.conf), prefix=str(self.directory), binary=self.binary,
            watch_seconds=PAUSE_SECONDS,
        )  # fmt: skip
        done = apply_change(
            LiveHost(), self.state, [Proposed(str(self.site), after, sums[0], sums[1])], {}, wish
        )
        if done.outcome != "kept":
            raise SystemExit(f"{self.binary}: {done.outcome}: {done.reason}")
        roll_back(LiveHost(), self.state, None)
        time.sleep(PAUSE_SECONDS)
        return 2

    def stop(self) -> None:
        """Stop nginx with its workers."""
        os.kill(int((self.directory / "nginx.pid").read_text()), signal.SIGTERM)


def load(port: int, seconds: float) -> LoadPlan:
    """A load over kept and new connections, with requests always in flight."""
    both = [
        LoadClass(
            name=name,
            arrivals=Arrivals(kind="closed", users=8, think_seconds=0.002),
            paths=Paths(kind="fixed", paths=["/"]),
            connections=8,
            keepalive=keeps,
            timeout_seconds=5.0,
        )
        for name, keeps in (("kept", True), ("new", False))
    ]
    return LoadPlan(
        target=Target(address="127.0.0.1", port=port),
        classes=both,
        duration_seconds=seconds,
        caps=Caps(seconds=seconds + 60),
        permit=Permit(ports=[port]),
    )


def measure(server: Server, work: Callable[[], int], seconds: float) -> Counter[str]:
    """Reloads, requests and failures of one turn."""
    found: list[Measurement] = []
    probe = threading.Thread(target=lambda: found.append(run_probe(load(server.port, seconds))))
    probe.start()
    counted: Counter[str] = Counter()
    until = time.monotonic() + seconds - 1.0
    time.sleep(0.3)
    while time.monotonic() < until:
        counted["reloads"] += work()
    probe.join()
    for name, part in found[0].classes.items():
        counted[f"{name} requests"] += part.requests
        counted[f"{name} failed"] += sum(part.errors.values())
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("binaries", nargs="+", metavar="NGINX")
    options = parser.parse_args()
    print(
        "| nginx | what | reloads | requests kept / new | failed kept | failed new | each reload |"
    )
    print("|---|---|--:|--:|--:|--:|--:|")
    for binary in options.binaries:
        directory = Path(tempfile.mkdtemp(dir="/root", prefix="apply-losses-"))
        server = Server(binary, directory)
        try:
            sums: dict[str, Counter[str]] = {
                "nothing": Counter(),
                "plain": Counter(),
                "apply": Counter(),
            }
            for _ in range(options.rounds):
                for what, total in sums.items():
                    total.update(measure(server, getattr(server, what), options.seconds))
        finally:
            server.stop()
            time.sleep(0.5)
            shutil.rmtree(directory, ignore_errors=True)
        said = subprocess.run([binary, "-v"], capture_output=True, text=True, check=True).stderr
        for what, total in sums.items():
            failed = total["kept failed"] + total["new failed"]
            each = f"{failed / total['reloads']:.2f}" if total["reloads"] else "–"
            print(
                f"| {said.strip().rpartition('/')[2]} | {what} | {total['reloads']} | "
                f"{total['kept requests']:,} / {total['new requests']:,} | "
                f"{total['kept failed']} | {total['new failed']} | {each} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
