"""Clients of a server with an injected cause, as a separate process.

    python clients.py JSON

``JSON`` is {port, kind, threads, paths, pause, tls, gzip, keepalive, cpus}. The process ends when
its parent does. ``{n}`` in a path is a number below ``names``; a thread uses each number once
before it starts over.
"""

import contextlib
import ctypes
import http.client
import itertools
import json
import os
import random
import signal
import socket
import ssl
import sys
import threading
import time
from typing import Any


def connection(ask: dict[str, Any]) -> http.client.HTTPConnection:
    if ask.get("tls"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # our own server's
        return http.client.HTTPSConnection("127.0.0.1", ask["port"], timeout=20, context=context)
    return http.client.HTTPConnection("127.0.0.1", ask["port"], timeout=20)


def get(ask: dict[str, Any], number: int) -> None:
    """Make requests one after another, with a pause between them."""
    names = itertools.cycle(range(number, ask.get("names", 1 << 30), ask["threads"]))
    paths = itertools.cycle(ask["paths"])
    headers = {"Accept-Encoding": "gzip"} if ask.get("gzip") else {}
    if not ask.get("keepalive"):
        headers["Connection"] = "close"
    one = None
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            one = one or connection(ask)
            one.request("GET", next(paths).format(n=next(names)), headers=headers)
            answer = one.getresponse()
            while answer.read(1 << 20):
                pass
            if ask.get("keepalive") and not answer.will_close:
                time.sleep(random.expovariate(1 / ask["pause"]) if ask.get("pause") else 0)
                continue
        if one is not None:
            one.close()
        one = None
        time.sleep(random.expovariate(1 / ask["pause"]) if ask.get("pause") else 0)


def burst(ask: dict[str, Any], _number: int) -> None:
    """Repeatedly open many connections at once, each with one request.

    They are opened on the server's CPU and with priority over it, so it accepts none before the
    last.
    """
    os.sched_setaffinity(0, ask["cpus"])
    while True:
        opened = []
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        for _ in range(ask["connections"]):
            one = socket.socket()
            one.setblocking(False)
            with contextlib.suppress(OSError):
                one.connect(("127.0.0.1", ask["port"]))
            opened.append(one)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        time.sleep(ask["pause"])
        for one in opened:
            with contextlib.suppress(OSError):
                one.send(b"GET / HTTP/1.0\r\n\r\n")
        time.sleep(ask["pause"])
        for one in opened:
            one.close()


def main() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    ask = json.loads(sys.argv[1])
    work = {"get": get, "burst": burst}[ask.get("kind", "get")]
    for number in range(ask["threads"]):
        threading.Thread(target=work, args=(ask, number), daemon=True).start()
    while os.getppid() != 1:
        time.sleep(0.2)


if __name__ == "__main__":
    main()
