"""A plan that is made of its own result is empty: what it writes tells it nothing new."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import RunCli
from recorded_hosts import facts_bytes

WORDPRESS = """\
events { worker_connections 1024; }
http {
    fastcgi_cache_path ROOT/cache levels=1:2 keys_zone=WP:10m inactive=60m;
    fastcgi_cache_key $scheme$request_method$host$request_uri;
    server {
        listen 127.0.0.1:18963;
        root ROOT/www;
        location / { try_files $uri $uri/ /index.php?$args; }
        location ~ \\.php$ {
            fastcgi_pass unix:/run/php.sock; fastcgi_cache WP; fastcgi_cache_valid 200 2s;
        }
        location ~* \\.(css|png)$ { expires max; access_log off; }
        location /protected/ { internal; alias ROOT/private/; }
    }
}
"""
PROXY = """\
events { worker_connections 1024; }
http {
    upstream app { server 192.0.2.7:8080; server 192.0.2.8:8080; }
    server {
        listen 127.0.0.1:18963;
        location / { proxy_pass http://app; }
        location /static/ { alias ROOT/www/; }
    }
}
"""
FILES = """\
worker_processes 2;
events { multi_accept on; }
http {
    sendfile off;
    include conf.d/*;
}
"""
SERVER = """\
server {
    listen 127.0.0.1:18963;
    location /img/ { root ROOT/www; aio threads=old; }
    location /api/ { proxy_pass http://127.0.0.1:9000; }
}
"""
LOAD = {
    "schema": "nginx-tune/workload/1",
    "rate": {"mean_per_second": 4000, "peak_per_second": 9000, "provenance": "declared"},
    "concurrency": {"mean": 800, "peak": 3000, "provenance": "declared"},
}
SIZES = {"sizes": {"mean_bytes": 4_000_000, "provenance": "declared"}}
CASES: dict[str, tuple[dict[str, str], Mapping[str, Any], list[str]]] = {
    "nobody knows the load": ({"nginx.conf": WORDPRESS}, {}, []),
    "a cache beside files": ({"nginx.conf": WORDPRESS}, LOAD, []),
    "a cache that gets a bound": ({"nginx.conf": WORDPRESS}, LOAD | SIZES, []),
    "a cache that is bound": (
        {"nginx.conf": WORDPRESS.replace("inactive=60m", "max_size=200g")}, LOAD | SIZES, []
    ),
    "its files alone": ({"nginx.conf": WORDPRESS}, LOAD, ["--kind", "static"]),
    "a proxy": ({"nginx.conf": PROXY}, LOAD, []),
    "a cache that is to come": (
        {"nginx.conf": PROXY}, LOAD, ["--kind", "cache", "--cache-dir", "ROOT/new"]
    ),
    "files of several files": (
        {"nginx.conf": "thread_pool old threads=4;\n" + FILES, "conf.d/a": SERVER}, LOAD, []
    ),
}  # fmt: skip


def facts_of(host: str, root: Path) -> dict[str, Any]:
    """The host with all of the site on its first recorded disks, and 6 TB of files in its root."""
    facts: dict[str, Any] = json.loads(facts_bytes(host))
    scans = json.loads(facts_bytes("three-disk-node"))["datasets"]
    place = facts["storage"]["paths"][0]
    facts["storage"]["paths"] = [
        place | {"path": str(path)} for path in (root, root / "www", root / "cache")
    ]
    facts["datasets"] = [scans[0] | {"path": str(root / "www")}]
    facts["nginx"] |= {"running": None, "instances": [], "candidates": []}
    return facts


def planned(run_cli: RunCli, conf: Path, options: list[str]) -> dict[str, str]:
    """The files that a plan changes, with what they would be."""
    run = run_cli("plan", conf, "-p", conf.parent, *options, "-f", "json")
    assert run.returncode == 0, run.stderr
    files = json.loads(run.stdout)["files"]
    return {one["path"]: base64.b64decode(one["content"]).decode() for one in files}


@pytest.mark.long
@pytest.mark.parametrize("host", ["raid10-4hdd", "sata-ssd"])
@pytest.mark.parametrize("case", CASES)
def test_made_again_on_its_own_result_it_is_empty(
    case: str, host: str, run_cli: RunCli, tmp_path: Path
) -> None:
    """The second one reads the tree anew: also the caches and bounds that the first one wrote."""
    files, workload, options = CASES[case]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text.replace("ROOT", str(tmp_path)))
    options = [one.replace("ROOT", str(tmp_path)) for one in options]
    for name, document in (("facts", facts_of(host, tmp_path)), ("workload", workload)):
        if document:
            (tmp_path / f"{name}.json").write_text(json.dumps(document))
            options += [f"--{name}", str(tmp_path / f"{name}.json")]
    conf = tmp_path / "nginx.conf"
    first = planned(run_cli, conf, options)
    assert first, "a plan that changes nothing shows nothing"
    for path, text in first.items():
        Path(path).write_text(text)
    assert planned(run_cli, conf, options) == {}


@pytest.mark.parametrize(
    ("conf", "options", "held", "is_bound"),
    [
        (PROXY, ["--kind", "cache", "--cache-dir", "ROOT/new"], None, True),
        (WORDPRESS, [], 0, True),
        (WORDPRESS, [], None, False),
    ],
    ids=["to come", "stands empty", "stands unseen"],
)
def test_threads_get_their_pool_beside_the_bound_that_tells_how_many(
    conf: str,
    options: list[str],
    held: int | None,
    *,
    is_bound: bool,
    run_cli: RunCli,
    tmp_path: Path,
) -> None:
    """A bound that the plan writes says as much of the cache as one that stands."""
    facts = facts_of("raid10-4hdd", tmp_path)
    if held is not None:
        scan = {"path": f"{tmp_path}/cache", "files": held, "bytes": held, "sizes": None}
        facts["datasets"] = [facts["datasets"][0] | scan]
    (tmp_path / "nginx.conf").write_text(conf.replace("ROOT", str(tmp_path)))
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    (tmp_path / "workload.json").write_text(json.dumps(LOAD | SIZES))
    options = [one.replace("ROOT", str(tmp_path)) for one in options]
    options += ["--facts", f"{tmp_path}/facts.json", "--workload", f"{tmp_path}/workload.json"]
    (plan,) = planned(run_cli, tmp_path / "nginx.conf", options).values()
    assert "aio threads;" in plan
    assert ("max_size=" in plan) is is_bound
    assert ("thread_pool default threads=" in plan) is is_bound
