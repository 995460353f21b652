"""A fleet's documents as `fleet-audit.yml` keeps them, of made-up hosts."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import command_line
from recorded_hosts import facts_bytes, facts_file
from tiers import dice

from nginx_tune.documents.base import json_schema
from nginx_tune.documents.facts import Facts

SITES = Path(__file__).resolve().parents[1] / "sites"
ROLES = {
    "edge": ("three-disk-node", "cdn"),
    "blog": ("virtio-vm", "wordpress"),
    "mirror": ("raid10-4hdd", "static"),
}
"""Each is a recorded machine with an ordinary site's configuration."""
DAYS = ("2026-11-29", "2026-11-30")

Documents = dict[str, Any]


def documents_of(role: str) -> Documents:
    """Facts, findings and plan of a role's host, whose configuration lies in /etc/nginx."""
    machine, site = ROLES[role]
    tree = str(SITES / site / "etc/nginx")
    given = ["-c", f"{tree}/nginx.conf", "--facts", str(facts_file(machine))]
    given += ["--map", f"/etc/nginx={tree}", "-f", "json"]
    found: Documents = {"facts": json.loads(facts_bytes(machine))}
    for name, command in (("findings", ["audit", "--accept-missing", "*"]), ("plan", ["plan"])):
        run = command_line.call("-q", *command, *given)
        assert run.stdout, run.stderr
        found[name] = json.loads(run.stdout.replace(tree, "/etc/nginx"))
    return found


def write_fleet(folder: Path, count: int) -> list[str]:
    """The documents of so many hosts on two days, in which nothing but counters differs."""
    made = {role: documents_of(role) for role in ROLES}
    (folder / "facts.schema.json").write_bytes(json_schema(Facts))
    names = [f"{[*ROLES][number % len(ROLES)]}-{number:04}" for number in range(count)]
    for name in names:
        for day in DAYS:
            found = copy.deepcopy(made[name.partition("-")[0]])
            stir(found["facts"], dice(f"{name} {day}"))
            keep(folder, day, name, found)
    return names


def keep(folder: Path, day: str, host: str, documents: Documents) -> None:
    place = folder / day / host
    place.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        (place / f"{name}.json").write_text(json.dumps(document))


def change(folder: Path, host: str, name: str, *steps: str | int, to: Any, days: int = 1) -> None:
    """Set a value in a host's document on the last days; ``steps`` lead to it."""
    for day in DAYS[-days:]:
        path = folder / day / host / f"{name}.json"
        document = node = json.loads(path.read_text())
        for step in steps[:-1]:
            node = node[step]
        node[steps[-1]] = to
        path.write_text(json.dumps(document))


def stir(facts: Any, chance: random.Random) -> None:
    """Draw anew what no two looks at a host have in common."""
    memory = facts["memory"]
    for name in ("available_bytes", "page_cache_limit_bytes", "dirty_bytes", "dirty_limit_bytes"):
        memory[name] = chance.randrange(1 << 34)
    memory["consumers"] = {"anonymous": chance.randrange(1 << 34)}
    facts["network"]["listen_drops"] = chance.randrange(1000)
    facts["network"]["tcp"]["segments_sent"] = chance.randrange(1 << 40)
    for link in facts["network"]["links"]:
        link["missed_packets"] = chance.randrange(1000)
    for place in facts["storage"]["paths"]:
        place["available_bytes"] = chance.randrange(1 << 40)
    for data in facts["datasets"]:
        data["files"], data["sizes"] = chance.randrange(1 << 20), None
    pid = chance.randrange(1 << 22)
    facts["nginx"]["choice"] = f"nginx is /usr/sbin/nginx of process {pid}: it runs"
    facts["nginx"]["running"] = {
        "pid": pid,
        "age_seconds": chance.random() * 1e6,
        "workers": [{"pid": pid + one, "age_seconds": chance.random()} for one in range(8)],
    }
    facts["listeners"] = [
        {"address": "0.0.0.0", "port": port, "drops": chance.randrange(9)} for port in (22, 80, 443)
    ]
