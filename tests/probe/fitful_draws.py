"""Situations drawn at random: a server in fits and starts, and what it is asked.

All that rests comes to less than `RESTS_SECONDS`, and so do the paces of a class, so that nothing
needs as much as half of the time that a request has.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import msgspec
from fitful_wire import Temper, spread, text

from nginx_tune.documents.loadplan import (
    Arrivals,
    Http2,
    Http3,
    LoadClass,
    LoadPlan,
    Paths,
    Permit,
    Target,
    Tls,
)

RESTS_SECONDS = 1.5
TIMEOUT_SECONDS = 30.0
MOST_BYTES = 8_000_000
"""Of all bodies of a class."""
BEHIND_NGINX = ("http2", "http3")
WAYS = ["http1", "http1-unix", "http1-tls"]


@dataclass(frozen=True)
class Situation:
    """What was drawn; the server's address comes in when that is known."""

    way: str
    temper: Temper
    classes: list[LoadClass]
    duration_seconds: float
    threads: int
    idle_connections: int

    @property
    def is_harmless(self) -> bool:
        temper = self.temper
        return not temper.drops

    def plan(self, port: int, tls: Tls | None) -> LoadPlan:
        unix = self.temper.unix
        place = Target(address="127.0.0.1", port=port, tls=tls)
        return LoadPlan(
            target=place if unix is None else Target(unix=unix, tls=tls),
            classes=self.classes,
            duration_seconds=self.duration_seconds,
            drain_seconds=TIMEOUT_SECONDS,
            threads=self.threads,
            idle_connections=self.idle_connections,
            seed=self.temper.seed,
            permit=Permit(ports=[] if unix else [port], sockets=[unix] if unix else []),
        )


def draw(seed: int, folder: Path, way: str = "", tls: list[str] | None = None) -> Situation:
    """The situation of a seed; ``tls``: the files for ways that need them."""
    dice = random.Random(seed)
    drawn = dice.choice(WAYS)
    way = way or drawn
    temper = draw_temper(dice, seed, way, folder, tls if "tls" in way else None)
    replays = dice.random() < 0.4
    duration = 20.0 if replays else round(dice.uniform(0.2, 0.8), 3)
    threads = dice.choice([1, 1, 1, 2])
    maker = Draw(dice, way, temper, folder, replays, duration, threads)
    classes = [maker.answers("one")]
    if dice.random() < 0.6:
        classes.append(maker.answers("two"))
    return Situation(
        way,
        temper,
        shared(random.Random(f"{seed} shares"), classes),
        duration,
        threads=threads,
        idle_connections=dice.choice([0, 0, 0, 3]),
    )


def shared(dice: random.Random, classes: list[LoadClass]) -> list[LoadClass]:
    """The same, now and then over the same connections."""
    if len(classes) < 2 or classes[0].http2 is None or dice.random() < 0.5:
        return classes
    owner, guest = dice.sample(classes[:2], 2)
    # What a connection reads slowly holds back all that goes over it.
    owner = msgspec.structs.replace(owner, read_pace_of="stream")
    arrivals = guest.arrivals
    if arrivals.kind == "closed":
        users = min(arrivals.users, owner.connections)
        arrivals = msgspec.structs.replace(arrivals, users=users)
    guest = msgspec.structs.replace(
        guest,
        arrivals=arrivals,
        connections_of=owner.name,
        http2=owner.http2,
        connections=owner.connections,
        read_pace_of="stream",
    )
    return [owner, guest]


def draw_temper(
    dice: random.Random, seed: int, way: str, folder: Path, tls: list[str] | None
) -> Temper:
    harm = dice.choice(["", "", "", "drops"])
    if way in BEHIND_NGINX:  # which makes of it what it likes
        harm = ""
    least = dice.choice([300, 2000, 20_000])
    return Temper(
        seed=seed,
        unix=str(folder / "s") if "unix" in way else None,
        tls=tls,
        rests_seconds=round(dice.uniform(0.3, RESTS_SECONDS), 3),
        longest_rest_seconds=dice.choice([0.02, 0.1, 0.3, 1.0]),
        read_bytes=(least, dice.choice([2 * least, 100_000, 1_000_000])),
        read_rests=dice.choice([0.0, 0.02, 0.2, 0.9]),
        write_bytes=(dice.choice([1, 100, 5000]), dice.choice([5000, 50_000, 500_000])),
        write_rests=dice.choice([0.0, 0.02, 0.2, 0.9]),
        receive_buffer_bytes=dice.choice([None, 2048, 16_384, 200_000]),
        send_buffer_bytes=dice.choice([None, 4096, 50_000]),
        delays=dice.choice([0.0, 0.3, 1.0]),
        parts=dice.random() < 0.5,
        closes=dice.choice([0.0, 0.0, 0.3]),
        drops=0.2 if harm == "drops" else 0.0,
    )


@dataclass
class Draw:
    """Draws the classes of a load."""

    dice: random.Random
    way: str
    temper: Temper
    folder: Path
    replays: bool
    duration: float
    threads: int

    def __post_init__(self) -> None:
        self.count = self.dice.randint(1, 30)
        self.connections = self.dice.choice([self.threads, self.threads, 2, 3, 6])
        # Less where it is taken in small pieces.
        small = self.temper.read_bytes[1] < 10_000
        most = MOST_BYTES // self.count
        self.most_bytes = min(most, 200_000 if small else 2_000_000)
        self.kind = "replay" if self.replays else "open"
        if not self.replays and self.dice.random() < 0.3:
            self.kind = "closed"

    def sizes(self, least: int) -> list[int]:
        drawn = [spread(self.dice, 1, self.most_bytes) for _ in range(self.dice.randint(1, 3))]
        drawn.append(self.dice.choice([least, 16_384, 65_535, self.most_bytes]))
        return [min(size, self.most_bytes) for size in drawn]

    def arrivals(self) -> Arrivals:
        if self.kind == "replay":
            return Arrivals(kind="replay")
        if self.kind == "closed":
            think = self.dice.choice([0.02, 0.1])
            users = max(1, int(self.count * think / self.duration))
            users = min(users, self.connections)
            return Arrivals(kind="closed", users=users, think_seconds=think)
        kind = self.dice.choice(["constant", "poisson"])
        return Arrivals(kind=kind, rate_per_second=round(self.count / self.duration + 1, 3))

    def paths(self, name: str, sizes: list[int]) -> Paths:
        """Their numbers are the bytes of the answers."""
        if self.replays:
            return Paths(kind="manifest", manifest=str(self.manifest(name, sizes)))
        files = [self.folder / str(size) for size in sizes]
        for file, size in zip(files, sizes, strict=True):
            file.write_bytes(text(0, size))
        return Paths(
            kind="uniform",
            paths=[f"/{size}" for size in sizes],
            bytes=sizes,
            files=[str(file) for file in files] if self.dice.random() < 0.5 else None,
        )

    def manifest(self, name: str, sizes: list[int]) -> Path:
        span = self.dice.choice([0.0, 0.1, 0.7])
        moments = sorted(round(self.dice.uniform(0, span), 4) for _ in range(self.count))
        lines: list[object] = [{"schema": "nginx-tune/manifest/1", "paths": "kept"}]
        for moment in moments:
            size = self.dice.choice(sizes)
            lines.append({"offset_seconds": moment, "path": f"/{size}", "bytes": size})
        file = self.folder / name
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return file

    def common(self, name: str, answers: list[int]) -> dict[str, object]:
        dice = self.dice
        parts: dict[str, object] = {
            "name": name,
            "arrivals": self.arrivals(),
            "connections": self.connections,
            "paths": self.paths(name, answers),
            "timeout_seconds": TIMEOUT_SECONDS,
            "hash_ratio": 1.0,
        }
        streams = dice.choice([1, 2, 8, 32])
        windows = {
            "stream_window_bytes": dice.choice([65_535, 100_000, 6 << 20]),
            "connection_window_bytes": dice.choice([65_535, 100_000, 15 << 20]),
        }
        if self.way == "http2":
            parts["http2"] = Http2(streams=streams, **windows)
        elif self.way == "http3":
            parts["http3"] = Http3(streams=streams, **windows)
        else:
            turns = dice.random() < 0.5 and self.kind != "closed"
            parts["connection_use"] = "turns" if turns else "latest"
            used = dice.choice(["", "", "keepalive", "keepalive_requests", "close_probability"])
            if used == "keepalive" and not turns:
                parts["keepalive"] = False
            elif used == "keepalive_requests":
                parts["keepalive_requests"] = dice.randint(1, 4)
            elif used == "close_probability":
                parts["close_probability"] = 0.3
            if dice.random() < 0.3 and self.temper.unix is None:
                parts["receive_buffer_bytes"] = dice.choice([4096, 20_000])
        return parts

    def answers(self, name: str) -> LoadClass:
        dice, sizes = self.dice, self.sizes(1)
        parts = self.common(name, sizes)
        if self.way != "http3" and dice.random() < 0.35:
            all_bytes = max(sizes) * self.count / self.connections
            pace = int(all_bytes / dice.uniform(0.3, RESTS_SECONDS)) + 1000
            parts["read_bytes_per_second"] = pace
            if self.way == "http2":
                parts["read_pace_of"] = dice.choice(["stream", "connection"])
        return LoadClass(**parts)  # type: ignore[arg-type]
