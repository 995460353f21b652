"""A server in fits and starts: says its port, serves until SIGTERM, and says what came."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import ssl
import sys
import threading
import traceback
from collections import Counter

from fitful_http1 import Http1
from fitful_wire import Rests, Temper, Wire


def serve(peer: socket.socket, wire: Wire) -> None:
    with peer:
        try:
            wire.run(Http1(wire))
        except (ConnectionError, ssl.SSLError):
            pass
        except Exception:  # noqa: BLE001 — a fault of the server is to be seen
            wire.tally.faults.append(traceback.format_exc())


def secured(temper: Temper) -> ssl.SSLContext | None:
    if temper.tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*temper.tls)
    return context


def listener(temper: Temper) -> socket.socket:
    server = socket.socket(socket.AF_INET if temper.unix is None else socket.AF_UNIX)
    for option, size in (
        (socket.SO_RCVBUF, temper.receive_buffer_bytes),
        (socket.SO_SNDBUF, temper.send_buffer_bytes),
    ):
        if size is not None:
            server.setsockopt(socket.SOL_SOCKET, option, size)
    server.bind(("127.0.0.1", 0) if temper.unix is None else temper.unix)
    server.listen(200)
    return server


def said(wires: list[Wire], rests: Rests) -> str:
    tallies = [wire.tally for wire in wires]
    return json.dumps({
        "connections": len(wires),
        "whole": sum(it.whole for it in tallies),
        "faults": [fault for it in tallies for fault in it.faults],
        "given": sum((it.given for it in tallies), Counter[str]()),
        "rests_left_seconds": rests.left,
    })  # fmt: skip


def main(words: str) -> None:
    temper = Temper(**json.loads(words))
    dice = random.Random(temper.seed)
    rests = Rests(temper.rests_seconds, temper.longest_rest_seconds)
    context, wires = secured(temper), list[Wire]()
    server = listener(temper)

    def accept() -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                peer, _ = server.accept()
                if temper.unix is None:
                    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                wire = Wire(peer, temper, random.Random(dice.random()), rests)
                if context is not None:
                    wire.encrypt(context)
                wires.append(wire)
                threading.Thread(target=serve, args=(peer, wire), daemon=True).start()

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    threading.Thread(target=accept, daemon=True).start()
    os.write(1, f"{0 if temper.unix else server.getsockname()[1]}\n".encode())
    signal.sigwait([signal.SIGTERM])
    os.write(1, said(wires, rests).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
