"""``tools/behaviour-suite``: what it puts into tests, how it reads them, and what it covers."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from generated_files import render

from nginx_tune.conf.directive import Block
from nginx_tune.conf.tree import parse_text

TOOL = Path(__file__).resolve().parents[2] / "tools" / "behaviour-suite"

NO_SWITCH = {
    # The site's own shape, which every configuration has.
    "http", "server", "location", "upstream", "events", "listen", "server_name", "root", "types",
    "default_type", "try_files", "return", "internal", "allow", "deny", "stub_status", "user",
    "include", "split_clients", "map", "proxy_pass", "proxy_cache", "proxy_cache_path",
    "ssl_certificate", "ssl_certificate_key", "add_header", "http2",
    # Where it writes.
    "access_log", "error_log", "log_format", "pid",
    # Capacity: nothing that a single request could tell. The time is of idle connections.
    "worker_connections", "zone", "keepalive", "keepalive_timeout",
    # How long nginx waits for a server, and for how many: the suite's tests set their own.
    "proxy_connect_timeout", "proxy_next_upstream_tries", "proxy_next_upstream_timeout",
    # A cache's identity: the suite's caches have keys of their own.
    "proxy_cache_key",
    # Whom an answer is for: no request of the suite that is cached has a name and password.
    "proxy_cache_bypass", "proxy_no_cache",
}  # fmt: skip


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL), run_name="behaviour_suite")


def _names(block: Block) -> Iterator[str]:
    for directive in block:
        yield directive.name
        if directive.block is not None and directive.name not in {"types", "split_clients", "map"}:
            yield from _names(directive.block)


def test_every_switch_that_is_written_has_its_settings(tool: dict[str, Any]) -> None:
    written = set()
    for text in render().values():
        written |= set(_names(parse_text(text).main))
    tried = set()
    for one in tool["read_settings"](TOOL.with_name("behaviour-settings.toml")):
        tried |= set(_names(parse_text(f"{one.main} {one.events} {one.http}").main))
    assert "aio" in written
    assert sorted(written - tried - NO_SWITCH) == []


def test_listeners_get_the_parameter_once_an_address(tool: dict[str, Any]) -> None:
    text = (
        "# Tests for listen port ranges\nuse strict;\n"
        "events {\n}\nlisten 127.0.0.1:8080; listen 127.0.0.1:8080; listen 127.0.0.1:8081 ssl;"
        " listen unix:/x; listen 127.0.0.1:8082 quic;\nevents {\n}\nlisten 127.0.0.1:8080;"
    )
    given = tool["Settings"]("one", listen="reuseport", events="accept_mutex off;")
    assert tool["rewrite"](text, given) == (
        "# Tests for listen port ranges\nuse strict;\n"
        "events { accept_mutex off;\n}\nlisten 127.0.0.1:8080 reuseport; listen 127.0.0.1:8080;"
        " listen 127.0.0.1:8081 ssl reuseport; listen unix:/x; listen 127.0.0.1:8082 quic;\n"
        "events { accept_mutex off;\n}\nlisten 127.0.0.1:8080 reuseport;"
    )
    assert tool["rewrite"](text, tool["PLAIN"]) == text


def test_cases_are_read_by_what_they_prove(tool: dict[str, Any]) -> None:
    passed, failed = tool["parse_tap"](
        "1..5\nok 1 - first\nnot ok 2 - second\n#   Failed test\nok 3 # skip no such module\n"
        "not ok 4 - later # TODO not yet\nok 5\n"
    )
    assert passed == {"1 first", "5"}
    assert failed == {"2 second"}
