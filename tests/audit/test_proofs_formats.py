"""What logs, caches and filters lose without a word: formats, times, encodings."""

import gzip
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from nginx_versions import Nginx, every_version
from origin import Request, ok, run_origin
from proving import fires
from rows import each_row
from scratch_nginx import Server
from started import until
from test_proofs_mistakes import CONF, ask

pytestmark = pytest.mark.needs("nginx", "root")

Serve = Callable[[str], Server]


@every_version
@each_row("escape", ["", "escape=json"])
def test_log_json_unescaped_writes_lines_that_are_no_json(
    serve: Serve, nginx: Nginx, escape: str
) -> None:
    form = f"""log_format j {escape} '{{"agent":"$http_user_agent"}}'; """
    server = serve(CONF % (form, "access_log DIR/j j; location / { return 204; }"))
    ask(server, "/", 'User-Agent: a "quoted" one')
    log = server.directory / "j"
    until(lambda: log.exists() and log.read_text().endswith("\n"))
    try:
        said = json.loads(log.read_text())["agent"]
    except ValueError:
        said = None
    assert (said == 'a "quoted" one') is bool(escape)
    assert fires("log-json-unescaped", server.conf) is not bool(escape)


@every_version
def test_ca_inactive_short_throws_valid_answers_away(serve: Serve, nginx: Nginx) -> None:
    path = "proxy_cache_path DIR/%s keys_zone=%s:1m max_size=9m inactive=%s; "
    place = "location /%s { proxy_cache %s; proxy_pass http://127.0.0.1:%d; } "
    with run_origin(lambda _request, _peer: ok()) as origin:
        server = serve(
            CONF
            % (
                path % ("lost", "lost", "1s") + path % ("kept", "kept", "1h"),
                "proxy_cache_valid 200 1h; "
                + "".join(place % (name, name, origin.port) for name in ("lost", "kept")),
            )
        )
        assert fires("ca-inactive-short", server.conf)
        for name in ("/lost", "/kept"):
            ask(server, name)
        assert _files(server.directory / "lost")
        time.sleep(1.5)
        server.process.send_signal(signal.SIGHUP)  # a cache manager looks at once when it starts
        until(lambda: not _files(server.directory / "lost"))
        assert _files(server.directory / "kept")
        for name in ("/lost", "/kept"):
            ask(server, name)
    assert [one.path for one in origin.requests] == ["/lost", "/kept", "/lost"]


@every_version
@each_row("header", ["", 'proxy_set_header Accept-Encoding "";'])
def test_px_sub_filter_compressed_replaces_nothing(serve: Serve, nginx: Nginx, header: str) -> None:
    packed = gzip.compress(b"old text", mtime=0)

    def answer(request: Request, _: object) -> bytes:
        if "accept-encoding: gzip" in request.head.lower():
            return ok(packed, "Content-Type: text/html", "Content-Encoding: gzip")
        return ok(b"old text", "Content-Type: text/html")

    with run_origin(answer) as origin:
        server = serve(
            CONF % ("", (f"location / {{ sub_filter old new; {header} "
                    f"proxy_pass http://127.0.0.1:{origin.port}; }}"))
        )  # fmt: skip
        _, headers, body = ask(server, "/", "Accept-Encoding: gzip")
        plain = ask(server, "/")[2]
    assert b"new text" in plain
    assert ("content-encoding" in headers) is not bool(header)
    assert (b"new text" in body) is bool(header)
    assert (packed[:16] in body) is not bool(header)
    assert fires("px-sub-filter-compressed", server.conf) is not bool(header)


def _files(directory: Path) -> list[Path]:
    return [one for one in directory.rglob("*") if one.is_file()]
