"""The effect of `proxy_cache_lock` on concurrent requests for the same page.

    python benchmarks/cache_lock.py [--requests 40] [--rounds 3] [--nginx BIN]

An origin makes each page in 20 ms; its answer may be cached (`max-age`) or not (`private`). Many
clients request the same new page at once, through a cache without a lock, with one, and with one
that waits for at most a second. Prints a Markdown table over all rounds: the clients' waits, and
the number of concurrent requests at the origin. Everything is on the loopback link.
"""

import argparse
import asyncio
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SECONDS_OF_A_PAGE = 0.02
LOCKS = {
    "off": "",
    "on": "proxy_cache_lock on;",
    "on, `_timeout 1s`": "proxy_cache_lock on; proxy_cache_lock_timeout 1s;",
}
ANSWERS = ("max-age=60", "private")
CONF = """\
daemon off; user root; worker_processes 1; pid {top}/pid; error_log {top}/error.log;
events {{}}
http {{
    access_log off;
    proxy_cache_path {top}/cache keys_zone=c:1m;
    {servers}
}}
"""
SERVER = """
    server {{
        listen unix:{top}/{number}.sock;
        location / {{ proxy_pass http://unix:{top}/origin.sock; proxy_cache c; {lock} }}
    }}"""


class Seen(NamedTuple):
    """The results of a round of a variant."""

    waits_seconds: list[float]
    most_at_origin: int


class Origin:
    """An origin that makes pages, and counts those that it makes at the same time."""

    def __init__(self) -> None:
        self.here = self.most = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        kept = ANSWERS[b"/private" in head.split(b" ")[1]]
        self.here += 1
        self.most = max(self.most, self.here)
        await asyncio.sleep(SECONDS_OF_A_PAGE)
        self.here -= 1
        writer.write(f"HTTP/1.0 200 OK\r\nCache-Control: {kept}\r\n\r\nhello".encode())
        await writer.drain()
        writer.close()


@contextmanager
def serving(nginx: str, top: Path) -> Iterator[None]:
    servers = [
        SERVER.format(top=top, number=number, lock=lock)
        for number, lock in enumerate(LOCKS.values())
    ]
    (top / "nginx.conf").write_text(CONF.format(top=top, servers="".join(servers)))
    with subprocess.Popen([nginx, "-c", str(top / "nginx.conf")]) as server:
        try:
            while not (top / "pid").exists():
                time.sleep(0.05)
            yield
        finally:
            server.terminate()


async def ask(place: str, path: str) -> float:
    began = time.perf_counter()
    reader, writer = await asyncio.open_unix_connection(place)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    if not (await reader.read()).endswith(b"hello"):
        raise SystemExit("an answer was cut")
    writer.close()
    return time.perf_counter() - began


async def measure(top: Path, requests: int, rounds: int) -> dict[tuple[str, str], list[Seen]]:
    found: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    origin = Origin()
    async with await asyncio.start_unix_server(origin.answer, f"{top}/origin.sock"):
        for number in range(rounds):
            for answer in ANSWERS:
                for server, lock in enumerate(LOCKS):
                    origin.most = 0
                    path = f"/{'private' if answer == 'private' else 'kept'}/{number}/{server}"
                    place = f"{top}/{server}.sock"
                    waits = await asyncio.gather(*(ask(place, path) for _ in range(requests)))
                    found[answer, lock].append(Seen(list(waits), origin.most))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nginx", default="nginx")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        top.chmod(0o755)
        with serving(asked.nginx, top):
            found = asyncio.run(measure(top, asked.requests, asked.rounds))
    print("| the answer says | proxy_cache_lock | median s | longest s | at the origin at once |")
    print("|---|---|---|---|---|")
    for (answer, lock), seen in found.items():
        waits = [wait for one in seen for wait in one.waits_seconds]
        most = max(one.most_at_origin for one in seen)
        print(
            f"| `{answer}` | {lock} | {statistics.median(waits):.3f} | {max(waits):.3f} | {most} |"
        )


if __name__ == "__main__":
    main()
