"""Cells drawn at random, within what the lab can emulate.

    python benchmarks/regret/draw.py --seed S --count N --write DIR     # TOML, nothing is run
    python benchmarks/regret/draw.py --seed S --count N --results DIR   # as root: run them

Hosts have one to four disks of several kinds, with a slow one at any position; files of 1 KiB to 64
MiB, of one size or of several; popularity from uniform to Zipf 1.2; data of a fifth to eight times
the memory; hot files, cold names, a slow link, slow clients, TLS, short and long connections,
closed and open loops; proxies and caches in front of an origin. The same seed draws the same cells;
--first skips those that another run has measured.

Each cell runs stock, the recommendation, two neighbours of it, "always on" and threads alone: four
rounds, and then as many again while the result is in doubt, up to --rounds. Cells with clear
results are not run again; with more --rounds than before, the others continue where they ended.
"""

import argparse
import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import matrix
import msgspec

MIB = 1 << 20
MOST_BYTES = 1 << 30
"""Bytes of a cell's data, all of which the lab writes before the first run."""
MOST_FILES = 20_000
LEAST_FILES = 24
"""The fewest files; each of so few is popular."""
_DISKS = (
    ("hdd", None),
    ("ssd", None),
    ("hdd", {"read_seconds": 0.08, "spread_ratio": 0.5, "channels": 1, "bytes_per_second": 16e6}),
    (
        "ssd",
        {
            "read_seconds": 0.0004,
            "channels": 8,
            "bytes_per_second": 400e6,
            "stall_every_seconds": 1.0,
            "stall_seconds": 0.2,
        },
    ),
)
"""Kinds of disks: usual ones, one that is ten times slower, and flash with stalls."""
SECONDS = 2.0
"""Seconds of load in a run, with which forty cells take an hour and a half."""
_PROXIED = 0.15
_SLOW_CLIENTS = 0.15
_BEARABLE_READS = {"hdd": 40.0, "ssd": 1000.0}
"""Files per second that a usual disk reads easily."""


def draw_cells(seed: int, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The drawn cells by name, as tables like those of ``cells/``."""
    for number in range(count):
        yield f"drawn-{seed}-{number:03d}", draw_cell(random.Random(f"{seed}/{number}"))  # noqa: S311


def draw_cell(rng: random.Random) -> dict[str, Any]:
    """A drawn cell."""
    if rng.random() < _PROXIED:
        return _proxied(rng)
    memory = rng.choice([96, 128, 192, 256]) * MIB
    disks = _disks(rng)
    sizes = _sizes(rng)
    mean = sum(sizes) / len(sizes)
    data_bytes = min(MOST_BYTES, memory * 2 ** rng.uniform(-2.3, 3.0))
    files = max(LEAST_FILES, min(MOST_FILES, round(data_bytes / mean))) // len(disks) + 2
    lab: dict[str, Any] = {
        "name": disks[0]["class_name"],
        "memory_bytes": memory,
        "worker_processes": rng.choice([1, 1, 2]),
        "disks": disks,
        "data": [_data(disk["name"], files, sizes) for disk in disks],
        "tls": rng.random() < 0.25,
    }
    cold_names = rng.random() < 0.15
    if cold_names:
        lab["cold_names"] = True
    elif rng.random() < 0.15:
        lab["topology"] = "link"
        lab["link"] = {"bits_per_second": rng.choice([200, 500]) * 10**6}
    classes = [*_random_classes(rng, disks, mean), *_hot(rng), _memory(rng)]
    return {
        "title": _title(lab, sizes, files * len(disks)),
        "kind": "media" if mean > 256 << 10 else "static",
        "candidates": list(matrix.DRAWN),
        "starts": "cold" if cold_names else "full",
        "duration_seconds": SECONDS,
        "primary_metric": f"{_primary(classes)}.mean",
        "lab": lab,
        "classes": classes,
    }


def _proxied(rng: random.Random) -> dict[str, Any]:
    """A proxy, or a cache on one or two disks, in front of an origin."""
    kind = rng.choice(["proxy", "cache", "cache"])
    memory = rng.choice([128, 256]) * MIB
    size = round(2 ** rng.uniform(10, 20))
    room = min(MOST_BYTES // 2, round(memory * 2 ** rng.uniform(-1, 1)))
    class_name = rng.choice(["hdd", "ssd"])
    disks = [
        {
            "name": f"disk{number}",
            "class_name": class_name,
            "kind": "modelled",
            "mount": f"/srv/disk{number}",
            "writable": True,
            "room_bytes": room,
        }
        for number in range(1, (rng.choice([1, 1, 2]) if kind == "cache" else 1) + 1)
    ]
    files = max(LEAST_FILES, min(MOST_FILES, room // 2 // size))
    keepalive = rng.random() < 0.8
    one: dict[str, Any] = {
        "name": "pages",
        "source": "random",
        "exponent": round(rng.uniform(0.3, 1.2), 2),
        "connections": 64,
        "keepalive": keepalive,
        "arrivals": {
            "kind": "poisson",
            "rate_per_second": round(min(rng.choice([20.0, 100.0, 400.0]), 20e6 / size), 2),
        },
    }
    return {
        "title": f"Drawn: {kind} on {len(disks)} {class_name}, {files} objects of "
        f"{size / 1024:.0f} KiB at an origin",
        "kind": kind,
        "candidates": list(matrix.DRAWN),
        "starts": "cold",
        "duration_seconds": SECONDS,
        "primary_metric": "pages.mean",
        "lab": {
            "name": class_name,
            "memory_bytes": memory,
            "worker_processes": rng.choice([1, 2]),
            "topology": "proxy",
            "origin": {
                "delay_seconds": rng.choice([0.002, 0.02, 0.1]),
                "files": files,
                "file_bytes": size,
            },
            "disks": disks,
            "data": [],
        },
        "classes": [one, _memory(rng)],
    }


def _disks(rng: random.Random) -> list[dict[str, Any]]:
    """One to four disks of one kind, or with one of another kind at any position."""
    count = rng.choice([1, 1, 1, 2, 3, 4])
    kinds = [rng.choice(_DISKS[:2])] * count
    if rng.random() < 0.4:
        kinds[rng.randrange(count)] = rng.choice(_DISKS[2:])
    found = []
    for number, (class_name, model) in enumerate(kinds, start=1):
        disk: dict[str, Any] = {
            "name": f"disk{number}",
            "class_name": class_name,
            "kind": "modelled",
            "mount": f"/srv/disk{number}",
        }
        found.append(disk if model is None else {**disk, "model": model})
    return found


def _sizes(rng: random.Random) -> list[int]:
    """The sizes of files in turn: one, or three very different ones."""
    if rng.random() < 0.7:
        return [round(2 ** rng.uniform(10, 24))]
    small = 2 ** rng.uniform(10, 15)
    return [round(small), round(small * 2 ** rng.uniform(2, 5)), round(2 ** rng.uniform(20, 26))]


def _data(disk: str, files: int, sizes: list[int]) -> dict[str, Any]:
    if len(sizes) == 1:
        return {"disk": disk, "prefix": f"{disk}-", "files": files, "file_bytes": sizes[0]}
    # Large files are few, as in most trees; size and popularity are independent.
    named = {
        f"{disk}-f{number:05d}.bin": sizes[0 if number % 7 < 4 else 1 if number % 7 < 6 else 2]
        for number in range(files)
    }
    return {"disk": disk, "files": files, "file_bytes": sizes[0], "sizes": named}


def _random_classes(
    rng: random.Random, disks: list[dict[str, Any]], mean_bytes: float
) -> Iterator[dict[str, Any]]:
    """The classes that request random files, on each of the disks."""
    exponent = round(rng.choice([0.0, rng.uniform(0.3, 1.2)]), 2)
    waiting = rng.random() < 0.3
    keepalive = rng.random() < 0.8
    users = rng.choice([8, 16, 40])
    share = rng.uniform(0.1, 0.7)
    taken = None
    if rng.random() < _SLOW_CLIENTS:  # each takes at most a second for a file, so that runs end
        taken = round(max(50e3, mean_bytes * rng.uniform(1, 4)))
    for disk in disks:
        one: dict[str, Any] = {
            "name": f"cold{disk['name'].removeprefix('disk')}",
            "source": "random",
            "disk": disk["name"],
        }
        if exponent:
            one["exponent"] = exponent
        if taken is not None:
            one["read_bytes_per_second"] = taken
        if waiting:
            arrivals: dict[str, Any] = {"kind": "closed", "users": users}
            yield {**one, "connections": users, "arrivals": arrivals}
            continue
        bearable = min(_BEARABLE_READS[disk["class_name"]], 100e6 / mean_bytes)
        if "model" in disk:
            bearable /= 10
        rate = round(max(0.5, share * bearable), 2)
        arrivals = {"kind": "poisson", "rate_per_second": rate}
        own = {"connections": 128, "keepalive": keepalive, "arrivals": arrivals}
        turns = {"connection_use": "turns", "held_connections": 32} if keepalive else {}
        yield {**one, **own, **turns}


def _hot(rng: random.Random) -> Iterator[dict[str, Any]]:
    if rng.random() < 0.5:
        return
    yield {
        "name": "hot",
        "source": "hot",
        "connections": 4,
        "arrivals": {"kind": "closed", "users": 4, "think_seconds": 0.05},
    }


def _memory(rng: random.Random) -> dict[str, Any]:
    rate = rng.choice([50.0, 200.0])
    return {
        "name": "memory",
        "source": "memory",
        "connections": 128,
        "connection_use": "turns",
        "held_connections": 64,
        "arrivals": {"kind": "poisson", "rate_per_second": rate},
    }


def _primary(classes: list[dict[str, Any]]) -> str:
    """The primary metric, of the class that cold requests must not slow down."""
    names = [one["name"] for one in classes]
    return "hot" if "hot" in names else "memory"


def _title(lab: dict[str, Any], sizes: list[int], files: int) -> str:
    kinds = "+".join(disk["class_name"] for disk in lab["disks"])
    ways = [name for name in ("tls", "cold_names", "link") if lab.get(name)]
    each = "/".join(f"{size / 1024:.0f}" for size in sizes)
    return f"Drawn: {kinds}, {files} files of {each} KiB{''.join(f', {way}' for way in ways)}"


def write_toml(cell: dict[str, Any]) -> str:
    """A cell as a file of ``cells/``; msgspec itself writes no TOML."""
    lines: list[str] = []
    _table(lines, "", cell)
    return "\n".join(lines).strip() + "\n"


def _table(lines: list[str], name: str, table: dict[str, Any]) -> None:
    for key, value in table.items():
        if not _is_table(value):
            lines.append(f"{key} = {_value(value)}")
    for key, value in table.items():
        place = f"{name}{key}"
        if isinstance(value, dict) and _is_table(value):
            lines.append(f"[{place}]")
            _table(lines, f"{place}.", value)
        elif isinstance(value, list) and _is_table(value):
            for one in value:
                lines.append(f"[[{place}]]")
                lines += [f"{k} = {_value(v)}" for k, v in one.items()]


def _is_table(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], dict)
    return isinstance(value, dict) and any(isinstance(v, list | dict) for v in value.values())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{k}" = {_value(v)}' for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return msgspec.json.encode(value).decode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first cell to run")
    parser.add_argument("--rounds", type=int, default=8, help="at most; fewer where they tell")
    parser.add_argument("--minutes", type=float, help="start no cell that would end later")
    parser.add_argument("--write", type=Path, help="directory for the cells; nothing is run")
    parser.add_argument("--results", type=Path, help="directory for the results of a run")
    asked = parser.parse_args()
    if (asked.write is None) == (asked.results is None):
        parser.error("either --write or --results")
    drawn = draw_cells(asked.seed, asked.first + asked.count)
    cells = dict(itertools.islice(drawn, asked.first, None))
    if asked.write is not None:
        asked.write.mkdir(parents=True, exist_ok=True)
        for name, cell in cells.items():
            (asked.write / f"{name}.toml").write_text(write_toml(cell))
        return 0
    return _run(cells, asked.results, asked.rounds, asked.minutes)


def _run(
    cells: dict[str, dict[str, Any]], results: Path, rounds: int, minutes: float | None
) -> int:
    """Run the cells without results, and print the tables of all."""
    import run  # noqa: PLC0415  # the lab, which drawing does not need

    return run.run_cells(cells, results, rounds=rounds, minutes=minutes)


if __name__ == "__main__":
    sys.exit(main())
