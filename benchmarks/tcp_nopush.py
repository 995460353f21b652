"""The effect of `tcp_nopush on` on files in memory, for clients that pause.

    sudo python benchmarks/tcp_nopush.py [--kib 8 --kib 128 …] [--rounds N] [--nginx BIN]

The client uses plain blocking sockets and not the load probe, so that none of our code affects the
result: each of six connections requests a file, reads it, and pauses 20 ms. nginx runs in a
separate network namespace; the clients are in the same one over the loopback link, or in another
one over veth. Off and on take turns; prints a Markdown table over all rounds.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONNECTIONS = 6
PAUSE_SECONDS = 0.02
SECONDS = 2.0
PORT = 8080
INSIDE, OUTSIDE = f"nopush-{os.getpid()}-a", f"nopush-{os.getpid()}-b"
CONTROL = "net.ipv4.tcp_congestion_control=reno"
"""Reno, which every namespace may choose; a new one inherits the machine's, which may pace."""
ADDRESS = {"loopback": "127.0.0.1", "veth": "198.18.0.1"}
CONF = """\
user root; worker_processes 2; pid {top}/pid; error_log {top}/error.log;
events {{ }}
http {{
    access_log off; sendfile on; tcp_nopush {push};
    server {{ listen {port}; root {top}; }}
}}
"""


@contextmanager
def two_namespaces() -> Iterator[None]:
    """Two network namespaces connected by veth, which exist inside the context."""
    try:
        for words in (
            f"netns add {INSIDE}", f"netns add {OUTSIDE}",
            f"link add va netns {INSIDE} type veth peer name vb netns {OUTSIDE}",
            f"-n {INSIDE} address add {ADDRESS['veth']}/24 dev va",
            f"-n {OUTSIDE} address add 198.18.0.2/24 dev vb",
            f"-n {INSIDE} link set va up", f"-n {OUTSIDE} link set vb up",
            f"-n {INSIDE} link set lo up",
        ):  # fmt: skip
            subprocess.run(["ip", *words.split()], check=True)
        for name in (INSIDE, OUTSIDE):
            command = ["ip", "netns", "exec", name, "sysctl", "-qw", CONTROL]
            subprocess.run(command, check=True)
        yield
    finally:
        for name in (INSIDE, OUTSIDE):
            subprocess.run(["ip", "netns", "del", name], check=False)


@contextmanager
def serving(nginx: str, top: Path, push: str) -> Iterator[None]:
    conf = top / "nginx.conf"
    conf.write_text(CONF.format(top=top, push=push, port=PORT))
    command = ["ip", "netns", "exec", INSIDE, nginx, "-c", conf, "-g", "daemon off;"]
    with subprocess.Popen(command) as server:
        try:
            time.sleep(0.5)
            yield
        finally:
            server.terminate()
            server.wait(10)


def ask(address: str, path: str) -> list[float]:
    """The seconds from each request to the last byte of its answer."""
    found: list[float] = []

    def client() -> None:
        request = f"GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        with socket.create_connection((address, PORT)) as connection:
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                began = time.perf_counter()
                connection.sendall(request)
                said = b""
                while b"\r\n\r\n" not in said:
                    said += connection.recv(1 << 16)
                head, _, body = said.partition(b"\r\n\r\n")
                left = int(head.lower().split(b"content-length: ")[1].split()[0]) - len(body)
                while left > 0:
                    left -= len(connection.recv(min(left, 1 << 18)))
                found.append(time.perf_counter() - began)
                time.sleep(PAUSE_SECONDS)

    threads = [threading.Thread(target=client) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def measure(nginx: str, sizes: list[int], rounds: int) -> dict[tuple[str, int, str], list[float]]:
    times: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as place, two_namespaces():
        top = Path(place)
        for size in sizes:
            (top / str(size)).write_bytes(os.urandom(size << 10))
        for number in range(rounds):
            for push in ("off", "on") if number % 2 else ("on", "off"):
                with serving(nginx, top, push):
                    for size in sizes:
                        for link, own in (("loopback", INSIDE), ("veth", OUTSIDE)):
                            words = [sys.executable, __file__, "--client", ADDRESS[link], str(size)]
                            said = subprocess.run(
                                ["ip", "netns", "exec", own, *words],
                                check=True, capture_output=True, text=True,
                            )  # fmt: skip
                            times[link, size, push] += map(float, said.stdout.split())
    return times


def table(times: dict[tuple[str, int, str], list[float]]) -> str:
    lines = ["| link | KiB | tcp_nopush | requests | mean ms | p50 ms | p99 ms |",
             "|---|--:|---|--:|--:|--:|--:|"]  # fmt: skip
    for (link, size, push), found in sorted(times.items()):
        cut = statistics.quantiles(found, n=100)
        figures = " | ".join(
            f"{1e3 * one:.2f}" for one in (statistics.mean(found), cut[49], cut[98])
        )
        lines.append(f"| {link} | {size} | {push} | {len(found)} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:2] == ["--client"]:
        print(*ask(sys.argv[2], sys.argv[3]), sep="\n")
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kib", type=int, action="append", help="sizes (8, 64, 128, 512)")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--nginx", default="nginx")
    given = parser.parse_args()
    print(table(measure(given.nginx, given.kib or [8, 64, 128, 512], given.rounds)))


if __name__ == "__main__":
    main()
