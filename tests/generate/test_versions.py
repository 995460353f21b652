"""Every version of nginx takes what is generated for it, from situations that are drawn."""

import re
import subprocess
from pathlib import Path
from random import Random
from typing import get_args

import msgspec
import pytest
import tiers
from made_decisions import decide
from nginx_versions import Nginx, find_nginx, versions
from real_nginx import PATH
from situations import GIBIBYTE, host, load, site
from situations import nginx as program

from nginx_tune.change.generate.features import beside
from nginx_tune.change.generate.nginx_conf import emit_decided
from nginx_tune.decide.defaults import complete_site
from nginx_tune.documents.facts import DiskClass, Facts, Kernel
from nginx_tune.documents.site import Site, SiteTls, Upstream
from nginx_tune.documents.workload import Kind, Workload

pytestmark = pytest.mark.needs("nginx", "root")
SITUATIONS = tiers.draws(30, 300)
HAS_IPV6 = Path("/proc/net/if_inet6").exists()
every_version = versions("1.18", "1.22", "1.26", "1.30")


@pytest.fixture
def nginx(request: pytest.FixtureRequest) -> Nginx:
    return find_nginx(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=www.example.com", "-days", "2",
         "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    for number in range(1, 5):
        (tmp_path / str(number)).mkdir()
    (tmp_path / "mime.types").write_text("types { text/html html; text/css css; }\n")
    return tmp_path


def draw(dice: Random, nginx: Nginx, folder: Path) -> tuple[Facts, Workload, Site]:
    disks = dice.randint(1, 4)
    current = dice.random() < 0.5
    build = program(nginx.version, re.findall(r"--\S+", nginx.build))
    facts = host(
        cpus=dice.choice([1, 2, 8, 64]),
        memory_bytes=dice.choice([1, 16, 256]) * GIBIBYTE,
        disk_class=dice.choice(get_args(DiskClass)),
        disks=disks,
        mount=str(folder),
        kernel=Kernel(
            system="Linux",
            release="6.1.0",
            sysctls={
                "net.core.somaxconn": dice.choice(["128", "4096", "65535"]),
                "net.ipv6.conf.all.disable_ipv6": "0" if HAS_IPV6 else "1",
            },
        ),
        nginx=msgspec.structs.replace(
            build,
            openssl="OpenSSL 3.0.15",
            user="root" if current else None,
            mime_types_path=f"{folder}/mime.types" if current else None,
            gzip=["gzip on", "gzip_types *"] if current else None,
        ),
    )
    workload = load(
        dice.choice(get_args(Kind)),
        data_bytes=dice.choice([None, GIBIBYTE // 100, 100 * GIBIBYTE, 10_000 * GIBIBYTE]),
        file_bytes=dice.choice([1024, 65536, 4 << 20, 1 << 30]),
        exponent=dice.choice([0.0, 0.8, 1.2]),
        peak=dice.choice([None, 1, 250, 50_000]),
        cold_peak=dice.choice([None, 1, 200]),
        rate=dice.choice([None, 0.1, 500, 50_000]),
    )
    places = [f"{folder}/{number}" for number in range(1, disks + 1)]
    log = {"access_log": f"{folder}/access.log", "error_log": f"{folder}/error.log"}
    tls = SiteTls(certificate=f"{folder}/cert.pem", certificate_key=f"{folder}/key.pem")
    given = site(
        listen=dice.choice(
            [Site().listen, ["127.0.0.1:18080"], ["18080 default_server", "127.0.0.1:18081"]]
        ),
        roots=places,
        root_prefixes=[f"/{n}/" for n in range(disks)] if dice.random() < 0.5 else [],
        cache_dirs=[f"{place}/c" for place in places] if dice.random() < 0.5 else [],
        upstreams=[Upstream(name="app", servers=["127.0.0.1:9", "127.0.0.1:19 backup"])],
        tls=tls if dice.random() < 0.6 else None,
        http3=dice.random() < 0.5,
        streams=["/events/"] if dice.random() < 0.5 else [],
        stream_silence_seconds=dice.choice([None, 10.0, 300.0]),
        hot_locations=["/hot/"] if dice.random() < 0.3 else [],
        **log,
    )
    return facts, workload, given


@every_version
def test_what_is_generated_for_a_version_passes_its_own_test(nginx: Nginx, folder: Path) -> None:
    dice = tiers.dice("situations")
    for number in range(SITUATIONS):
        facts, workload, given = draw(dice, nginx, folder)
        complete = complete_site(given, facts, workload.kind, workload)
        text = emit_decided(
            decide(facts, workload, site=complete),
            complete,
            status_page=number % 2 == 0,
            beside=beside(complete, workload.kind, facts, workload),
        )
        conf = folder / "nginx.conf"
        conf.write_text(f"pid {folder}/pid;\n{text}", encoding="utf-8")
        run = subprocess.run(
            [nginx.program, "-t", "-c", conf],
            capture_output=True, text=True, check=False, env=PATH,
        )  # fmt: skip
        if "mmap(" in run.stderr and "Cannot allocate memory" in run.stderr:
            continue  # a zone for a host with more memory than this one
        said = f"{tiers.REPEAT}, situation {number}: {run.stderr}\n{text}"
        assert run.returncode == 0, said
        assert "[warn]" not in run.stderr, said
        has_http2 = bool(re.search(r"^ *(listen .*\bhttp2\b|http2 on;)", text, re.MULTILINE))
        assert has_http2 == (given.tls is not None), said
        has_http3 = re.findall(r"^ *listen (.*) quic\b", text, re.MULTILINE)
        can = "--with-http_v3_module" in facts.nginx.flags and nginx.number >= (1, 25, 0)
        assert bool(has_http3) == (given.tls is not None and given.http3 and can), said
        passes = workload.kind in ("proxy", "cache")
        assert ("proxy_buffering off;" in text) == (bool(given.streams) and passes), said
        assert ("ssl_protocols TLSv1.2 TLSv1.3;" in text) == (given.tls is not None), said
        assert (" [::]:" in text) == (HAS_IPV6 and given.listen == Site().listen), said
        assert (f"include {folder}/mime.types;" in text) == (facts.nginx.user is not None), said
