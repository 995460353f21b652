"""Two builds of nginx under one configuration, or each under its own."""

import json
import subprocess
from pathlib import Path

import pytest
from command_line import RunCli
from msgspec.structs import replace
from nginx_versions import NEWEST, find_nginx
from tiers import dice

from nginx_tune.documents.facts import Nginx
from nginx_tune.documents.verdict import Environment, Verdict
from nginx_tune.nginx.binary import LinkedBuild, build_differences
from nginx_tune.report.screen import plain_text
from nginx_tune.report.verdict import verdict_screen

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = "/usr/sbin/nginx"
DEBIAN = Nginx(
    binary=SYSTEM, product="nginx", version="1.22.1", nginx_version="1.22.1", openssl="OpenSSL 3.0",
    flags=["--prefix=/usr/share/nginx", "--with-threads", "--with-mail=dynamic"],
)  # fmt: skip


def test_what_differs_is_said_the_programs_first() -> None:
    resty = replace(
        DEBIAN,
        binary="/opt/resty",
        product="openresty",
        version="1.27.1.1",
        nginx_version="1.27.1",
        openssl=None,
        flags=["--prefix=/opt", "--with-threads", "--with-http_v3_module"],
    )
    before, after = LinkedBuild(DEBIAN, ["libc.so.6"]), LinkedBuild(resty, ["libc.so.6", "libj.so"])
    assert build_differences(before, after) == [
        "nginx 1.22.1 (/usr/sbin/nginx) → openresty 1.27.1.1 (/opt/resty)",
        "on nginx 1.22.1 → 1.27.1",
        "TLS by OpenSSL 3.0 → no library",
        "no longer configured with --with-mail=dynamic",
        "now configured with --with-http_v3_module",
        "now linked to libj.so",
    ]
    assert build_differences(before, before) == []
    unread = LinkedBuild(resty, None)
    assert not any("linked" in line for line in build_differences(before, unread))


def test_it_stands_before_the_table() -> None:
    verdict = Verdict(
        outcome="no_difference",
        primary_metric="hot.mean",
        environment=Environment(build_differences=["nginx 1 → nginx 2", "TLS by a → b"]),
    )
    lines = plain_text(verdict_screen(verdict)).splitlines()
    assert lines[2:4] == ["two builds: nginx 1 → nginx 2", "  TLS by a → b"]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    root = tmp_path / "www"
    root.mkdir()
    for number in range(3):
        (root / f"f{number}").write_bytes(dice(number).randbytes(2000))
    tmp_path.chmod(0o755)
    file = tmp_path / "nginx.conf"
    file.write_text(
        "user root; events {} http { access_log off; server { listen 127.0.0.1:18968;"
        f" root {root}; location = /v {{ return 200 $nginx_version; }} }} }}\n"
    )
    return file


def validated(run_cli: RunCli, *args: object) -> subprocess.CompletedProcess[str]:
    return run_cli(
        "validate", *args, "--pairs", "1", "--duration", "1s", "--warmup", "0.2s",
        "--no-store", "--accept-inconclusive", "-f", "json",
    )  # fmt: skip


def newest() -> str:
    return find_nginx(NEWEST).program


@pytest.mark.needs("nginx", "root", "probe", "nginx-1.30")
def test_each_variant_is_run_by_its_own(run_cli: RunCli, conf: Path) -> None:
    newer = conf.with_name("newer.conf")
    newer.write_text(conf.read_text().replace("location", "http2 on; location"))
    fine = validated(run_cli, newer, "--nginx", newest(), "--against", conf,
                     "--against-nginx", SYSTEM)  # fmt: skip
    verdict = json.loads(fine.stdout)
    # On a busy machine the one pair may be discarded; the variants are reported all the same.
    assert fine.returncode in ({4} if verdict["outcome"] == "invalid" else {0, 1}), fine.stderr
    environment = verdict["environment"]
    assert environment["build_differences"][0].endswith(f"({newest()})")
    assert environment["nginx_binary"] == newest()
    swapped = validated(run_cli, newer, "--against-nginx", newest(), "--nginx", SYSTEM)
    assert swapped.returncode == 3
    assert swapped.stderr.rstrip().endswith(f"(refused by {SYSTEM})")


@pytest.mark.needs("root", "nobody", "nginx-1.30", "nginx")
def test_a_baseline_that_others_could_write_is_not_run(
    run_cli: RunCli, conf: Path, tmp_path: Path
) -> None:
    other = tmp_path / "nginx"
    other.write_bytes(Path(SYSTEM).read_bytes())
    other.chmod(0o777)
    run = validated(run_cli, conf, "--against-nginx", other)
    assert (run.returncode, len(run.stderr.splitlines())) == (2, 1), run.stderr
    assert str(other) in run.stderr
    trusted = run_cli("validate", conf, "--against-nginx", other, "--trust", "--dry-run")
    assert trusted.returncode == 0, trusted.stderr


def test_two_builds_are_for_experiments_only(run_cli: RunCli) -> None:
    run = run_cli("scenario", "run", "thread-pools", "--against-nginx", "/x")
    assert run.returncode == 2
    assert "validate --dry-run" in run.stderr
