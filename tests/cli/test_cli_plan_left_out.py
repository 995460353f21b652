"""What ``plan`` says of decisions that it does not write, and what goes with what."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import RunCli
from situations import host, load, nginx

from nginx_tune.documents.base import encode

TLS = """load_module m/ngx_http_lua_module.so; worker_processes auto; events {}
http {
    access_log off;
    server {
        listen 443 ssl%s; ssl_certificate c.pem; ssl_certificate_key k.pem; root /srv/1;
        location /a/ { content_by_lua_block { ngx.say(1) } }
    }
}
"""
PASSED = """events {}
http {
    access_log off;
    server { listen 80; location / { proxy_pass http://10.0.0.1; %s } }
}
"""
FILES = "events {}\nhttp { access_log off; server { listen 80; root /srv/1; } }\n"


class Planned:
    """A configuration and what is planned of it."""

    def __init__(self, run_cli: RunCli, folder: Path) -> None:
        self._run_cli, self._folder = run_cli, folder
        facts = host(nginx=nginx("1.22.1", ["--with-http_v2_module", "--with-threads"]))
        (folder / "facts.json").write_bytes(encode(facts))
        (folder / "load.json").write_bytes(encode(load(cold_peak=200)))

    @property
    def conf(self) -> Path:
        return self._folder / "nginx.conf"

    def __call__(self, text: str, *options: str, verbose: str = "-v") -> str:
        self.conf.write_text(text)
        facts = ("--facts", self._folder / "facts.json", "--workload", self._folder / "load.json")
        run = self._run_cli("plan", verbose, self.conf, *facts, *options)
        assert run.returncode == 0, run.stderr
        return run.stdout

    def json(self, text: str, *options: str) -> dict[str, Any]:
        return dict(json.loads(self(text, *options, "-f", "json")))

    def written(self, text: str, *options: str) -> set[str]:
        """The decisions that have lines."""
        files = self.json(text, *options)["files"]
        return {hunk["decision"] for file in files for hunk in file["hunks"]}


@pytest.fixture
def planned(run_cli: RunCli, tmp_path: Path) -> Planned:
    return Planned(run_cli, tmp_path)


def test_a_decision_that_a_line_speaks_against_is_named(planned: Planned) -> None:
    reason = f"http2: {planned.conf}:6 content_by_lua_block: Lua cannot make subrequests"
    lines = planned(TLS % "").splitlines()
    [at] = [n for n, line in enumerate(lines) if line.startswith(f"# not written: {reason}")]
    assert not [line for line in lines[at:] if line.startswith(("# thread", "+", "-"))]
    assert lines[at] in planned(TLS % "", verbose="-q").splitlines()
    alone = planned(TLS % "", "--only", "http2")
    assert alone.startswith(f"# not written: {reason}")
    assert len(alone.strip().splitlines()) == 1
    page = planned(TLS % "", "-f", "md")
    assert f"## Not written\n\n- {reason}" in page.replace("\\", "")
    [refusal] = planned.json(TLS % "", "--only", "http2")["refusals"]
    assert (refusal["decision"], refusal["setting"]) == ("http2", "")
    assert "http2" not in planned(TLS % "", "--except", "http2")


def test_a_decision_that_stands_is_not(planned: Planned) -> None:
    assert "not written" not in planned(TLS % " http2", "--only", "http2")
    bound = "worker_processes auto; worker_cpu_affinity 0001 0010;\n"
    assert "not written: workers" not in planned(bound + FILES)
    few = bound.replace("auto", "2")
    said = f"not written: workers: {planned.conf}:1 worker_cpu_affinity 0001 0010 binds"
    assert said in planned(few + FILES)
    rtmp = (
        "load_module m/ngx_rtmp_module.so; worker_processes %s; rtmp { server { listen 1935; } }\n"
    )
    assert "not written: workers" in planned(rtmp % 2 + FILES)
    assert "not written: workers" not in planned(rtmp % "auto" + FILES)


def test_a_place_that_is_for_who_asks_says_why_it_has_no_cache(planned: Planned) -> None:
    own = PASSED % "auth_request /who;"
    said = planned(own, "--kind", "cache")
    why = f"responses may depend on the client ({planned.conf}:4"
    assert re.search(f"# not written: .*cache-key.*: {re.escape(why)}", said)
    assert "not written" not in planned(PASSED % "", "--kind", "cache")
    assert "not written" not in planned(PASSED % "", "--kind", "static", "--only", "cache-key")


CACHED = {"cache-layout", "cache-key"}


def test_a_new_cache_brings_its_key_and_goes_with_it(planned: Planned) -> None:
    kind = ("--kind", "cache")
    text = PASSED % ""
    assert planned.written(text, *kind, "--only", "cache-layout") == CACHED
    assert planned.written(text, *kind, "--only", "cache-key") == CACHED
    assert planned.written(text, *kind) > CACHED
    without = planned(text, *kind, "--except", "cache-key")
    assert "# not written: cache-layout: it depends on cache-key, which is left out\n" in without
    assert "proxy_cache" not in "".join(
        line for line in without.splitlines() if line.startswith("+")
    )
    both = planned.json(text, *kind, "--only", "cache-layout", "--except", "cache-key")
    assert not both["files"]
    assert [one["decision"] for one in both["refusals"]] == ["cache-layout"]


def test_a_cache_that_stands_needs_no_key(planned: Planned) -> None:
    stands = (PASSED % "proxy_cache z;").replace(
        "access_log off;", "access_log off; proxy_cache_path /var/cache/own keys_zone=z:1m;"
    )
    options = ("--kind", "cache", "--except", "cache-key")
    assert "it depends on" not in planned(stands, *options)
    assert planned.written(stands, *options) & {"cache-layout"} == planned.written(
        stands, "--kind", "cache"
    ) & {"cache-layout"}


POOL = {"thread-pools", "thread-pool-size"}


def test_a_pool_and_what_is_read_in_it_go_together(planned: Planned) -> None:
    every = planned.written(FILES)
    assert every >= POOL
    for name in POOL:
        assert planned.written(FILES, "--only", name) == POOL
        without = planned.json(FILES, "--except", name)
        hunks = {hunk["decision"] for file in without["files"] for hunk in file["hunks"]}
        assert hunks == every - POOL
        [other] = POOL - {name}
        assert [(one["decision"], one["reason"]) for one in without["refusals"]] == [
            (other, f"it depends on {name}, which is left out")
        ]
    assert planned.written(FILES, "--only", "sendfile") == {"sendfile"}


def test_a_pool_that_stands_needs_nothing_beside_it(planned: Planned) -> None:
    stands = FILES.replace("listen", "aio threads; listen")
    assert planned.written(stands, "--only", "thread-pool-size") == {"thread-pool-size"}
    assert planned.written(stands, "--except", "thread-pools") >= {"thread-pool-size"}


def test_writing_by_threads_needs_threads(planned: Planned) -> None:
    text, kind = PASSED % "", ("--kind", "cache", "--cache-dir", "/srv/1")
    every = planned.written(text, *kind)
    assert every >= {*POOL, "aio-write"}
    assert planned.written(text, *kind, "--only", "aio-write") == {*POOL, "aio-write"}
    assert not planned.written(text, *kind, "--except", "thread-pools") & {*POOL, "aio-write"}
    assert planned.written(text, *kind, "--except", "aio-write") == every - {"aio-write"}
