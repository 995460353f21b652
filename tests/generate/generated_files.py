"""Generated configurations: of every kind, for known and unknown hosts."""

import re

import msgspec
from made_decisions import decide
from situations import (
    FLAGS,
    GIBIBYTE,
    KIBIBYTE,
    MEBIBYTE,
    host,
    lab_host,
    lab_load,
    load,
    nginx,
    scanned,
    site,
    two_sizes,
)

from nginx_tune.change.generate.features import beside
from nginx_tune.change.generate.nginx_conf import emit_decided, emit_plain
from nginx_tune.change.generate.writing import FileProvenance
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.facts import Facts, Kernel
from nginx_tune.documents.site import Site, SiteTls, Upstream
from nginx_tune.documents.workload import Workload

BASE = "/srv/nginx-tune-generated"
"""Every path of every file lies here; tests put a temporary directory in its place."""


def _site(**parts: object) -> Site:
    return site(
        **{
            "listen": ["127.0.0.1:18080"],
            "server_names": ["www.example.com"],
            "roots": [f"{BASE}/1"],
            "error_log": f"{BASE}/error.log",
            "access_log": f"{BASE}/access.log",
            **parts,
        }
    )


def _decided(facts: Facts, workload: Workload, given: Site) -> str:
    complete = complete_site(given, facts, workload.kind, workload)
    return emit_decided(
        decide(facts, workload, site=complete),
        complete,
        provenance=FileProvenance(workload.kind, facts, workload, given),
        status_page=True,
        beside=beside(complete, workload.kind, facts, workload),
    )


def _busy_proxy() -> str:
    origin = Upstream(
        name="app",
        servers=["127.0.0.1:9001 max_fails=2", "127.0.0.1:9002", "127.0.0.1:9003 backup"],
    )
    facts = host(kernel=Kernel(system="Linux", sysctls={"net.core.somaxconn": "4096"}))
    workload = load("proxy", data_bytes=None, peak=400, rate=20_000)
    return _decided(facts, workload, _site(upstreams=[origin], listen=["127.0.0.1:18080"]))


def render() -> dict[str, str]:
    """Every file by name; digests left out, since a new field of a document changes them."""
    return {name: re.sub(r"sha256:\w+", "sha256:...", text) for name, text in _texts().items()}


def _texts() -> dict[str, str]:
    three = host(disks=3, mount=BASE, nginx=nginx("1.22.1"))
    fits = load(data_bytes=2 * MEBIBYTE, file_bytes=1024, rate=6000)
    apart = lab_load(300, 40)
    mixed = two_sizes(1_000_000, 16 * KIBIBYTE, 4_000, 512 * MEBIBYTE)
    tls = SiteTls(certificate=f"{BASE}/cert.pem", certificate_key=f"{BASE}/key.pem")
    freebsd = host(
        kernel=Kernel(system="FreeBSD"),
        nginx=nginx("1.26.3", ["--with-file-aio"]),
        disk_class="ssd",
    )
    current = msgspec.structs.replace(
        nginx("1.22.1", [*FLAGS, "--with-http_v2_module"]),
        user="www-data",
        mime_types_path=f"{BASE}/mime.types",
        gzip=["gzip on", "gzip_types text/plain text/css"],
    )
    sysctls = {"net.ipv6.conf.all.disable_ipv6": "0"}
    replacing = host(kernel=Kernel(system="Linux", sysctls=sysctls), nginx=current)
    return {
        "static-tls-replacing": _decided(replacing, load(), _site(tls=tls, listen=Site().listen)),
        "static-fits": _decided(host(), fits, _site()),
        "static-cold": _decided(host(), load(exponent=0.8), _site()),
        "static-unknown": _decided(Facts(), Workload(), _site()),
        "static-two-roots": _decided(
            host(disks=2, mount=BASE), load(), _site(roots=[f"{BASE}/1", f"{BASE}/2"])
        ),
        "static-two-prefixes": _decided(
            host(disks=2, mount=BASE),
            load(),
            _site(roots=[f"{BASE}/1", f"{BASE}/2"], root_prefixes=["/a/", "/b/"]),
        ),
        "static-plain": emit_plain(_site(access_log=None)),
        "media-lab": _decided(lab_host(), lab_load(), _site()),
        "media-hot-apart": _decided(lab_host(), apart, _site(hot_locations=["/hot/"])),
        "media-direct": _decided(*scanned(mixed, cache=24 * GIBIBYTE), _site()),
        "media-tls": _decided(host(), load("media"), _site(tls=tls)),
        "cache-one-disk": _decided(
            host(mount=BASE), Workload(kind="cache"), _site(cache_dirs=[f"{BASE}/1"])
        ),
        "cache-three-disks": _decided(three, Workload(kind="cache"), _site()),
        "proxy-busy": _busy_proxy(),
        "freebsd-static": _decided(freebsd, load(data_bytes=512 * GIBIBYTE), _site()),
    }
