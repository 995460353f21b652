"""What the grammar of values says against every nginx: where ours speaks, all of them refuse."""

from pathlib import Path

import pytest
from needs import lacks
from nginx_versions import Nginx, every_version, stream_modules
from refused_lines import (
    CACHE,
    CASES,
    COMMERCIAL,
    HTTP,
    OF_ANOTHER_NGINX,
    REFUSED_MAIL_VALUES,
    REFUSED_STREAM,
    RIGHT,
    RIGHT_STREAM,
    SERVER,
    WITHOUT_MODULE,
)
from rows import each_row
from scratch_nginx import config_test

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import read_tree
from nginx_tune.host.live import LiveHost

pytestmark = pytest.mark.needs("nginx", "root")

RULES = [rule for rule in ALL if rule.id.startswith("cf-")]


def _judged(nginx: Nginx, tmp_path: Path, conf: str) -> tuple[set[str], set[str], bool]:
    """The rules that fire with and without the version, and whether nginx accepts."""
    path = tmp_path / "nginx.conf"
    path.write_text(f"pid DIR/pid; error_log DIR/log; {conf}".replace("DIR", str(tmp_path)))
    tree = read_tree(str(path), LiveHost())
    flags = tuple(word for word in nginx.build.split() if word.startswith("--with"))
    facts = linux(version=nginx.version, flags=flags)
    known, unknown = (
        {one.rule for one in audit(tree, given, RULES).findings} for given in (facts, None)
    )
    accepted = config_test(path, nginx.program, under=("unshare", "--net")).returncode == 0
    return known, unknown, accepted


def _refused(rule: str, nginx: Nginx, tmp_path: Path) -> None:
    for conf in CASES[rule]:
        assert _judged(nginx, tmp_path, conf) == ({rule}, {rule}, False), conf


@every_version
def test_cf_buffers_refused_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-buffers-refused", nginx, tmp_path)


@every_version
def test_cf_lines_refused_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-lines-refused", nginx, tmp_path)
    for conf in OF_ANOTHER_NGINX:
        known, unknown, accepted = _judged(nginx, tmp_path, conf)
        assert (known, unknown, accepted) == ({"cf-lines-refused"}, set(), False), conf
    links = SERVER % "secure_link $arg_a; secure_link_secret a;"
    built = "secure_link" in nginx.build
    assert _judged(nginx, tmp_path, links)[::2] == ({"cf-lines-refused"}, False) or not built
    for words, since in {"keepalive 0": (1, 29, 7), "keepalive 00": (1, 29, 7)}.items():
        conf = HTTP % f"upstream u {{ server 127.0.0.1; {words}; }}"
        known, unknown, accepted = _judged(nginx, tmp_path, conf)
        assert (known, unknown) == (set() if accepted else {"cf-lines-refused"}, set()), conf
        assert accepted is (nginx.number >= since[:2]), conf


@every_version
def test_cf_value_invalid_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-value-invalid", nginx, tmp_path)


@every_version
def test_cf_directive_twice_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-directive-twice", nginx, tmp_path)


@every_version
def test_cf_reference_unknown_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-reference-unknown", nginx, tmp_path)


@every_version
def test_cf_variable_unknown_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-variable-unknown", nginx, tmp_path)


@every_version
def test_cf_location_twice_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-location-twice", nginx, tmp_path)


@every_version
def test_cf_listen_twice_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-listen-twice", nginx, tmp_path)


@every_version
def test_cf_location_refused_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-location-refused", nginx, tmp_path)


@every_version
def test_cf_upstream_refused_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-upstream-refused", nginx, tmp_path)


OBSOLETE_LINES = [
    "http2_push /a;",
    "http2_push_preload on;", "http2_max_concurrent_pushes 3;", "ssl_session_tickets on;",
    "keepalive_requests 9;",
]  # fmt: skip


@every_version
def test_cf_directive_obsolete_is_warned_of(nginx: Nginx, tmp_path: Path) -> None:
    for line in OBSOLETE_LINES:
        path = tmp_path / "nginx.conf"
        path.write_text(f"pid {tmp_path}/pid; error_log stderr warn; {SERVER % line}")
        said = config_test(path, nginx.program, under=("unshare", "--net")).stderr
        found = audit(read_tree(str(path), LiveHost()), linux(version=nginx.version), RULES)
        fired = {one.rule for one in found.findings}
        assert ("cf-directive-obsolete" in fired) is ("is obsolete" in said), line


@every_version
def test_cf_directive_version_knows_sticky(nginx: Nginx, tmp_path: Path) -> None:
    conf = HTTP % "upstream u { server 127.0.0.1; sticky cookie a; }"
    known, _, accepted = _judged(nginx, tmp_path, conf)
    assert known == (set() if accepted else {"cf-directive-version"})
    assert accepted is (nginx.number >= (1, 30))


VERSIONED = {
    SERVER % "listen 127.0.0.1:1 quic;": (1, 26),
    SERVER % "listen 127.0.0.1:1 multipath;": (1, 30),
    CACHE % "min_free=1m": (1, 22),
    HTTP % "resolver 127.0.0.1; upstream u { zone u 64k; server a.example resolve; }": (1, 30),
}


@every_version
def test_cf_parameter_unknown_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    _refused("cf-parameter-unknown", nginx, tmp_path)
    for conf in COMMERCIAL:
        assert _judged(nginx, tmp_path, conf) == ({"cf-parameter-unknown"}, set(), False), conf
    for conf, since in VERSIONED.items():
        known, unknown, accepted = _judged(nginx, tmp_path, conf)
        assert ("cf-parameter-unknown" in known) is (nginx.number < since), conf
        assert "cf-parameter-unknown" not in unknown, conf
        if nginx.number < since:
            assert not accepted, conf


def test_cf_module_not_loaded_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    if "--with-stream=dynamic" not in nginx.build:
        lacks("debian-build", "this nginx has stream inside")
    for conf in WITHOUT_MODULE:
        known, unknown, accepted = _judged(nginx, tmp_path, conf)
        assert (known, unknown, accepted) == ({"cf-module-not-loaded"}, set(), False), conf


@pytest.mark.needs("stream-modules")
def test_cf_stream_refused_is_refused(nginx: Nginx, tmp_path: Path) -> None:
    loaded = "".join(f"load_module {module}; " for module in stream_modules())
    for conf in REFUSED_STREAM:
        known, _, accepted = _judged(nginx, tmp_path, loaded + conf)
        assert (known, accepted) == ({"cf-stream-refused"}, False), conf
    for conf in REFUSED_MAIL_VALUES:
        known, _, accepted = _judged(nginx, tmp_path, loaded + conf)
        assert (known, accepted) == ({"cf-value-invalid"}, False), conf
    for conf in RIGHT_STREAM:
        assert _judged(nginx, tmp_path, loaded + conf) == (set(), set(), True), conf


@every_version
@each_row("conf", RIGHT)
def test_what_is_right_is_taken(nginx: Nginx, tmp_path: Path, conf: str) -> None:
    assert _judged(nginx, tmp_path, conf) == (set(), set(), True)
