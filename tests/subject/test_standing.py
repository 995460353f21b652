"""What a file in place of an installed one keeps: user, media types, compression."""

from pathlib import Path

import msgspec
import pytest
from rows import each_row
from situations import host, load, nginx, site

from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.conf.tree import read_tree
from nginx_tune.decide.defaults import complete_site
from nginx_tune.decide.engine import decide
from nginx_tune.documents.facts import Facts, Kernel, Nginx, Unknown
from nginx_tune.documents.site import Site, SiteTls
from nginx_tune.documents.workload import Kind, Workload
from nginx_tune.errors import UsageError
from nginx_tune.host.live import LiveHost
from nginx_tune.observe.inspect.facts import current_settings, with_current_settings

MAIN = """\
user www-data staff;
events {}
http {
    include mime.types;
    tcp_nopush on;
    gzip on;
    gzip_types text/css "application/x y";
    gzip_disable "msie6";
    gzip_proxied expired no-cache;
}
"""
TLS = SiteTls(certificate="/c.pem", certificate_key="/k.pem")
HTTP2 = ["--with-threads", "--with-http_ssl_module", "--with-http_v2_module"]


def write(folder: Path, main: str = MAIN) -> str:
    (folder / "mime.types").write_text("types { text/html html; }\n")
    (folder / "nginx.conf").write_text(main)
    return str(folder / "nginx.conf")


def generated(facts: Facts, given: Site, kind: Kind = "static") -> str:
    complete = complete_site(given, facts, kind)
    workload = msgspec.structs.replace(load(), kind=kind)
    return emit_decided(decide(facts, workload, site=complete), complete)


def test_the_current_configuration_is_kept(tmp_path: Path) -> None:
    installed = msgspec.structs.replace(nginx(), conf_path=write(tmp_path))
    unknown = [Unknown(path="/nginx/gzip", reason="-"), Unknown(path="/cpu/smt", reason="-")]
    facts = with_current_settings(host(nginx=installed, unknown=unknown), LiveHost())
    assert facts.nginx.user == "www-data staff"
    assert facts.nginx.mime_types_path == f"{tmp_path}/mime.types"
    assert facts.nginx.gzip == [
        "gzip on", "gzip_disable msie6", "gzip_proxied expired no-cache",
    ]  # fmt: skip
    assert [one.path for one in facts.unknown] == ["/cpu/smt"], "what was found is not unknown"
    text = generated(facts, Site())
    assert "user www-data staff;" in text
    assert f"include {tmp_path}/mime.types;" in text
    assert "types {" not in text
    assert "gzip_proxied expired no-cache;" in text
    assert "gzip_vary" not in text
    assert "\n    tcp_nopush on;" in text


def test_tcp_nopush_is_not_written_where_no_files_are_sent(tmp_path: Path) -> None:
    """A proxy's file has no sendfile, and the audit would say that it does nothing."""
    installed = msgspec.structs.replace(nginx(), conf_path=write(tmp_path))
    facts = with_current_settings(host(nginx=installed), LiveHost())
    assert "tcp_nopush on;" not in generated(facts, Site(), "proxy")
    assert "tcp_nopush on;" in generated(facts, Site(), "cache")


@pytest.mark.long
@each_row(("line", "given", "kept"), [
    ("tcp_nopush on;", None, True), ("tcp_nopush off;", None, False), ("", None, False),
    ("tcp_nopush on;", False, False), ("", True, True),
])  # fmt: skip
def test_tcp_nopush_stays_as_it_is_installed(
    tmp_path: Path, line: str, given: bool | None, *, kept: bool
) -> None:
    main = f"events {{}} http {{ {line} }}"
    installed = msgspec.structs.replace(nginx(), conf_path=write(tmp_path, main))
    facts = with_current_settings(host(nginx=installed), LiveHost())
    assert facts.nginx.tcp_nopush == (line == "tcp_nopush on;")
    assert ("tcp_nopush on;" in generated(facts, Site(tcp_nopush=given))) == kept


@each_row(
    "main",
    [
        "events {} http { types { text/html html; } }",
        "events {} http { include sub[1]/mime.types; }",
        "events {} http { }",
    ],
)
def test_types_without_a_file_of_their_own_are_written_out(main: str, tmp_path: Path) -> None:
    (tmp_path / "sub1").mkdir()
    (tmp_path / "sub1" / "mime.types").write_text("types { text/html html; }\n")
    tree = read_tree(write(tmp_path, main), LiveHost())
    found = current_settings(tree, Nginx())
    assert found.gzip == []
    if "sub" in main:
        assert found.mime_types_path == f"{tmp_path}/sub1/mime.types"
    else:
        assert found.mime_types_path is None


def test_a_configuration_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    for path in (None, f"{tmp_path}/none", write(tmp_path, "events {")):
        facts = host(nginx=msgspec.structs.replace(nginx(), conf_path=path))
        assert with_current_settings(facts, LiveHost()) == facts


@pytest.mark.long
@each_row(
    ("given", "installed", "kind", "lines"),
    [
        (None, None, "static", ["gzip on", "gzip_vary on"]),
        (None, None, "media", []),
        (None, [], "static", []),
        (None, ["gzip on"], "media", ["gzip on"]),
        ([], ["gzip on"], "static", []),
        (["gzip on", "gzip_types *"], ["gzip on"], "cache", ["gzip on", "gzip_types *"]),
        (
            None,
            ["gzip on", "gzip_comp_level 9", "gzip_types text/css Image/PNG", "gzip_static on"],
            "proxy",
            ["gzip on", "gzip_static on"],
        ),
        (None, ["gzip on", "gzip_types *"], "static", ["gzip on"]),
        (None, ["gzip on", "gzip_types text/event-stream"], "proxy", ["gzip on"]),
        (None, ["gzip_comp_level 4", "gzip on"], "static", ["gzip_comp_level 4", "gzip on"]),
    ],
)
def test_compression_is_the_sites_else_the_installed_ones_else_the_usual(
    given: list[str] | None, installed: list[str] | None, kind: Kind, lines: list[str]
) -> None:
    facts = host(nginx=msgspec.structs.replace(nginx(), gzip=installed))
    text = generated(facts, Site(gzip=given), kind)
    found = [line.split("#")[0].strip(" ;") for line in text.splitlines() if " gzip" in line]
    assert [line for line in found if line.startswith("gzip")] == lines


@pytest.mark.long
@each_row(
    "line", ["gzip", "gzip on; user root", "gzip on\nuser root", "gunzip on", "gzip $x", "aio on"]
)
def test_a_gzip_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="gzip"):
        generated(host(), Site(gzip=[line]))


def test_a_build_without_gzip_gets_none() -> None:
    facts = host(nginx=nginx("1.26.3", ["--without-http_gzip_module"]))
    lines = generated(facts, Site()).splitlines()
    assert not [line for line in lines if line.lstrip().startswith("gzip")]


@each_row(
    ("version", "flags", "disabled", "both"),
    [
        ("1.26.3", [], "0", True),
        ("1.26.3", [], "1", False),
        ("1.26.3", [], None, False),
        ("1.10.3", [], "0", False),
        ("1.10.3", ["--with-ipv6"], "0", True),
        ("1.2.9", ["--with-ipv6"], "0", False),
    ],
)
@each_row("tls", [None, TLS])
def test_listens_on_ipv6_where_the_host_and_the_build_have_it(
    version: str, flags: list[str], disabled: str | None, both: bool, tls: SiteTls | None
) -> None:
    sysctls = {} if disabled is None else {"net.ipv6.conf.all.disable_ipv6": disabled}
    facts = host(
        kernel=Kernel(system="Linux", sysctls=sysctls),
        nginx=nginx(version, ["--with-threads", *flags]),
    )
    port = "80" if tls is None else "443"
    wanted = [port, f"[::]:{port}"] if both else [port]
    complete = complete_site(Site(tls=tls), facts, "static")
    assert complete.listen == wanted
    assert complete_site(complete, facts, "static") == complete
    assert complete_site(Site(listen=["8080"]), facts, "static").listen == ["8080"]


@pytest.mark.long
@each_row(
    ("version", "flags", "tls", "listen", "directive"),
    [
        ("1.25.0", HTTP2, TLS, True, False),
        ("1.25.1", HTTP2, TLS, False, True),
        ("1.9.5", HTTP2, TLS, True, False),
        ("1.9.4", HTTP2, TLS, False, False),
        ("1.26.3", HTTP2[:-1], TLS, False, False),
        ("1.26.3", HTTP2, None, False, False),
    ],
)
def test_http2_as_the_version_writes_it(
    version: str, flags: list[str], tls: SiteTls | None, listen: bool, directive: bool
) -> None:
    text = generated(host(nginx=nginx(version, flags)), Site(tls=tls))
    line = next(line for line in text.splitlines() if line.strip().startswith("listen "))
    assert ("http2" in line.partition(";")[0].split()) == listen
    assert ("http2 on;" in text) == directive


def test_the_word_of_listen_gives_way_to_the_directive() -> None:
    """From 1.25.1 the word is deprecated: nginx warns."""
    given = site(tls=TLS, listen=["443 ssl http2"])
    text = generated(host(nginx=nginx("1.26.3", HTTP2)), given)
    assert "listen 443 ssl;" in text
    assert "listen 443 ssl http2;" in generated(host(nginx=nginx("1.22.1", HTTP2)), given)


def test_http2_is_left_off_where_version_or_build_are_not_known() -> None:
    for program in (Nginx(), Nginx(version="1.26.3"), Nginx(flags=HTTP2)):
        decisions = decide(host(nginx=program), Workload(), site=Site(tls=TLS))
        (one,) = [d for d in decisions.decisions if d.id == "http2"]
        assert (one.verdict, one.settings) == ("not_enough_evidence", [])
