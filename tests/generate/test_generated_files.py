import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from generated_files import BASE, render
from nginx_versions import Nginx, every_version, find_nginx
from real_nginx import check
from rows import each_row

from nginx_tune.change.generate.nginx_conf import emit_decided, kept_defaults
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.decisions import Decision, Decisions
from nginx_tune.documents.site import Site

texts = cache(render)


@pytest.fixture
def nginx(request: pytest.FixtureRequest) -> Nginx:
    return find_nginx(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the files name, so that they can be tried."""
    path = tmp_path_factory.mktemp("generated")
    for name in ("1", "2", "3"):
        (path / name).mkdir()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=www.example.com", "-days", "2",
         "-keyout", path / "key.pem", "-out", path / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    (path / "mime.types").write_text("types { text/html html; }\n")
    return path


@pytest.mark.needs("nginx", "root")
@every_version
def test_every_nginx_that_it_is_for_accepts_it(nginx: Nginx, folder: Path) -> None:
    """A file for 1.22 says ``http2`` in ``listen``, which newer ones call deprecated.

    FreeBSD's asks for a build with --with-file-aio, and is refused without.
    """
    conf = folder / "nginx.conf"
    tried = 0
    for name, rendered in texts().items():
        if nginx.number < written_for(rendered):
            continue
        conf.write_text(f"pid {folder}/pid;\n{rendered.replace(BASE, str(folder))}")
        run = check(str(conf), nginx.program)
        if name.startswith("freebsd") and "--with-file-aio" not in nginx.build:
            assert "aio" in run.stderr or run.returncode == 0, run.stderr
            continue
        tried += 1
        assert run.returncode == 0, (name, run.stderr)
        warned = [line for line in run.stderr.splitlines() if "[warn]" in line]
        is_old_way = nginx.number >= (1, 25, 1) and "ssl http2" in rendered
        assert not [w for w in warned if not (is_old_way and "http2" in w)], (name, warned)
    assert tried


def written_for(text: str) -> tuple[int, ...]:
    """The version that the file says it knows nginx by; any, where it says none."""
    found = re.search(r"as nginx (\d+\.\d+\.\d+) has them", text)
    return tuple(map(int, found[1].split("."))) if found else (0,)


_OF_THE_SITE = frozenset(
    {
        "user", "events", "http", "server", "upstream", "location", "include", "types", "listen",
        "server_name", "root", "return", "try_files", "proxy_pass", "ssl_certificate",
        "ssl_certificate_key", "default_type", "log_format", "stub_status", "allow", "deny",
        "access_log off", "proxy_set_header Host", "proxy_set_header X-Forwarded-For",
        "proxy_set_header X-Forwarded-Proto", "proxy_set_header X-Forwarded-Host",
    }
)  # fmt: skip
"""What a site is, and how it is looked at: the lines of every file for it, tuned or not."""
_TUNED_LISTEN = re.compile("backlog|reuseport|deferred|fastopen")


@each_row("name", texts)
def test_every_line_but_the_sites_own_says_why(name: str) -> None:
    if name == "static-plain":
        return
    lines = texts()[name].splitlines()
    for one in parse_text(texts()[name]).main.walk():
        outer = "" if one.parent is None else one.parent.name
        words = {one.name, f"{one.name} {one.value}"}
        is_own = words & _OF_THE_SITE and not _TUNED_LISTEN.search(str(one))
        if not is_own and outer not in ("types", "map", "split_clients"):
            line, above = lines[one.line - 1], lines[one.line - 2].lstrip()
            assert "  # " in line or above.startswith("#"), line


@each_row("name", texts)
def test_a_log_format_is_declared_where_a_log_uses_it(name: str) -> None:
    http = next(line for line in parse_text(texts()[name]).main.all("http") if line.block)
    assert http.block is not None
    declared = {line.value for line in http.block.within("log_format")}
    assert declared == {line.args[1] for line in http.block.within("access_log") if line.args[1:]}


def test_what_was_left_alone_is_said() -> None:
    reason = "Leave them off: the dataset fits"
    known = Decision(id="thread-pools", verdict="disable", summary=reason)
    open_one = Decision(
        id="reuseport", verdict="not_enough_evidence", summary="Not known.", next_command="nstat"
    )
    decisions = Decisions(decisions=[known, open_one])
    assert kept_defaults(decisions) == [f"aio threads: {reason}"]
    text = emit_decided(decisions, Site())
    assert reason not in text
    assert "#   reuseport: Not known.\n#   measure it: nstat\n" in text


def test_no_template_holds_a_number_to_tune() -> None:
    """Digits in a skeleton: HTTP's 200 and 404, the local address, a CVE, and names of types."""
    templates = Path(__file__).resolve().parents[2] / "templates"
    for path in templates.glob("*.conf.j2"):
        if path.name == "types.conf.j2":
            continue
        text = re.sub(
            r"\.conf\.j2|return 200|=404|STATUS 200|CGI/1\.1|CVE-2016-5385|127\.0\.0\.1",
            "",
            path.read_text(),
        )
        assert not re.search(r"\d", text), path.name
