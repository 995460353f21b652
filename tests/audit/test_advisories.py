"""Security advisories by version and by what a configuration has."""

import subprocess
import sys
from pathlib import Path

from cases import outcome
from msgspec.structs import replace
from rows import each_row

from nginx_tune.audit.context import Context, parse_version
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.audit.rules import vr_known_vulnerability
from nginx_tune.audit.rules.vr_known_vulnerability import advisories
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.facts import Kernel

ROOT = Path(__file__).resolve().parents[2]
MP4 = "location / { mp4; }"
TLS = "server { listen 443 ssl; } "


def cves(server: str, version: str, *, machine: str = "x86_64", outer: str = "",
         main: str = "") -> set[str]:  # fmt: skip
    """What is found, by its number."""
    text = f"{main} events {{}} http {{ {outer} server {{ {server} }} }}"
    host = replace(linux(version=version), kernel=Kernel(system="Linux", machine=machine))
    found = vr_known_vulnerability.check(Context(parse_text(text), host))
    return {
        one.fact for hit in found for one in getattr(hit, "evidence", ()) if one.fact[:3] == "CVE"
    }


@each_row(
    ("server", "version", "expected"),
    [
        (MP4, "1.22.0", {"CVE-2022-41741", "CVE-2022-41742", "CVE-2024-7347", "CVE-2026-32647"}),
        (MP4, "1.22.1", {"CVE-2024-7347", "CVE-2026-32647"}),
        (MP4, "1.26.2", {"CVE-2026-32647"}),
        (MP4, "1.28.3", set()),
        (MP4, "1.29.6", {"CVE-2026-32647"}),
        (MP4, "1.30.0", set()),
        ("", "1.22.0", set()),
        ("resolver off;", "1.20.0", set()),
        ("resolver 10.0.0.1;", "1.20.0", {"CVE-2021-23017"}),
        ("resolver 10.0.0.1;", "1.20.1", set()),
        ("listen 443 quic;", "1.26.0",
         {"CVE-2024-32760", "CVE-2024-31079", "CVE-2024-35200", "CVE-2024-34161",
          "CVE-2026-40460"}),
        ("listen 443 quic;", "1.31.1", {"CVE-2026-42530"}),
        ("listen 443 ssl;", "1.31.1", set()),
        ("listen 443 ssl; ssl_ocsp leaf;", "1.30.0", {"CVE-2026-40701"}),
        ("listen 443 ssl; ssl_ocsp off;", "1.30.0", set()),
        ("ssi on; location / { proxy_pass http://a; }", "1.30.3", set()),
        ("ssi on; location / { proxy_pass http://a; proxy_buffering off; }", "1.30.3",
         {"CVE-2026-56434"}),
        ("location /a { ssi on; } location / { proxy_pass http://a; proxy_buffering off; }",
         "1.30.3", set()),
        ("location / { uwsgi_pass a:1; }", "1.30.0", {"CVE-2026-42946"}),
        ("location / { proxy_pass http://a; }", "1.28.0", set()),
        ("location / { proxy_pass HTTPS://a; }", "1.28.0", {"CVE-2026-1642"}),
        ("location / { proxy_pass https://a; }", "1.28.2", set()),
        ("location / { dav_methods PUT MOVE; alias /a; }", "1.28.0", {"CVE-2026-27654"}),
        ("location / { dav_methods PUT; alias /a; }", "1.28.0", set()),
        ("location / { rewrite ^/((.*))$ /?$1$2; }", "1.30.1", {"CVE-2026-9256"}),
        ("location / { rewrite ^/(.*)/(.*)$ /?$1$2; }", "1.30.1", set()),
        ("location / { rewrite ^(.*) /a?b=1; set $c $1; }", "1.30.0", {"CVE-2026-42945"}),
        ("location / { set $c $1; rewrite ^(.*) /a?b=1; }", "1.30.0", set()),
        ("location ~ (.*) { slice 1m; proxy_set_header A $1; proxy_pass http://a; }", "1.30.3",
         {"CVE-2026-60005"}),
        ("location / { slice 1m; proxy_pass http://a; }", "1.30.3", set()),
        ("slice 1m; location ~ (.*) { slice 0; proxy_set_header A $1; proxy_pass http://a; }",
         "1.30.3", set()),
        (("proxy_cache_background_update on; location ~ (.*) { proxy_cache c; "
         "proxy_set_header A $1; proxy_pass http://a; }"), "1.30.3", {"CVE-2026-60005"}),
        ("proxy_cache_background_update on; location ~ (.*) { fastcgi_cache_purge c $1; }",
         "1.30.3", set()),
    ],
)  # fmt: skip
def test_an_advisory_needs_its_version_and_its_condition(
    server: str, version: str, expected: set[str]
) -> None:
    assert cves(server, version) == expected


def test_conditions_beyond_a_line_of_a_server() -> None:
    assert "CVE-2026-27784" in cves(MP4, "1.29.0", machine="armv7l")
    verified = "listen 443 ssl; ssl_verify_client on;"
    assert cves(verified, "1.26.2", outer=TLS) == {"CVE-2025-23419"}
    assert cves(verified, "1.26.2") == set(), "there is no other server"
    stream = "stream { server { listen 1; ssl_ocsp on; } }"
    assert cves("", "1.29.6", main=stream) == {"CVE-2026-28755", "CVE-2026-40701"}
    mail = "mail { resolver 10.0.0.1; server { listen 25; smtp_auth none; } }"
    assert cves("", "1.29.0", main=mail) == {"CVE-2026-28753", "CVE-2025-53859"}
    mapped = "map $uri $to { ~^/(?<id>.*) $id; }"
    for text, is_found in (("$1:$to", True), ("$id $to", True), ("$to:$1", False)):
        found = cves(f'location / {{ return 200 "{text}"; }}', "1.30.3", outer=mapped)
        assert found == ({"CVE-2026-42533"} if is_found else set()), text


def test_the_version_is_asked_for_where_it_matters_and_forks_are_left_alone() -> None:
    rule = next(one for one in ALL if one.id == "vr-known-vulnerability")
    video = f"events {{}} http {{ server {{ {MP4} }} }}"
    assert outcome(rule.id, video, None) == "nginx.nginx_version"
    assert outcome(rule.id, "events {} http { server { root /a; } }", linux()) == 0
    host = linux(version="1.21.4")
    fork = replace(host, nginx=replace(host.nginx, product="openresty"))
    assert (outcome(rule.id, video, host), outcome(rule.id, video, fork)) == (1, 0)


def test_every_row_has_a_condition_and_a_release_without_the_fault() -> None:
    for row in advisories():
        assert row.triggers not in {"", "?"}, row.cve
        assert row.source.startswith("http"), row.cve
        if row.triggers != "never":
            assert row.fixed, row.cve
            assert not any(row.concerns(fixed) for fixed in row.fixed), row.cve
            assert not row.concerns(parse_version("99.0.0") or ()), row.cve


def test_the_table_is_renewed_from_the_page_and_names_what_is_new(tmp_path: Path) -> None:
    """As nginx.org lays out its items, with a row that the table has and one that it lacks."""
    item = (
        '<li><p>{title}<br>Severity: <b>major</b><br><a href="{link}">Advisory</a><br>'
        '<a href="https://www.cve.org/CVERecord?id={cve}">{cve}</a><br>'
        "Not vulnerable: 1.31.3+,\n 1.30.4+<br>Vulnerable: 0.9.6-1.31.2</p></li>"
    )
    tool, table = tmp_path / "tools/read-advisories", tmp_path / "nginx_tune/conf/advisories.tsv"
    for file in (tool, table):
        file.parent.mkdir(parents=True)
    tool.write_bytes((ROOT / "tools/read-advisories").read_bytes())
    known = advisories()[0]
    table.write_text("# head\n" + "\t".join(known) + "\n")
    page = tmp_path / "page.html"
    rows = [(known.title, known.source, known.cve), ("New", "https://a.example/", "CVE-2099-1")]
    page.write_text(
        "<ul>" + "".join(item.format(title=a, link=b, cve=c) for a, b, c in rows) + "</ul>"
    )
    run = subprocess.run(
        [sys.executable, str(tool), str(page)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (
        1, "CVE-2099-1: New (https://a.example/): write what concerns it\n"
    )  # fmt: skip
    lines = [line.split("\t") for line in table.read_text().splitlines() if line[0] != "#"]
    assert lines == [
        list(known),
        ["CVE-2099-1", "major", "0.9.6-1.31.2", "1.31.3+, 1.30.4+", "New", "https://a.example/",
         "?"],
    ]  # fmt: skip
    page.write_text("<html></html>")
    run = subprocess.run(
        [sys.executable, str(tool), str(page)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "no advisory in it" in run.stderr
