"""An ordinary user's nginx writes below directories of others: in memory, their files in sight."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from twins import twin
from unprivileged import AS_NOBODY, NOBODY, copy_package, interpreter

pytestmark = pytest.mark.needs("root", "nginx", "nobody", "probe")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="nginx-tune-others-", dir="/var/tmp"))
    path.chmod(0o755)
    copy_package(path / "package")
    (path / "home").mkdir()
    os.chown(path / "home", NOBODY, NOBODY)
    site = path / "site"
    site.mkdir()
    # Others' directories in what is served, one of them open to everybody.
    for name in ("open", "closed"):
        (site / name).mkdir()
        (site / name / "kept").write_bytes(bytes(30_000))
    (site / "open").chmod(0o777)
    yield path
    shutil.rmtree(path)


def run(place: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [interpreter() or "", "-m", "nginx_tune", *words],
        env={"PATH": "/usr/bin:/bin", "HOME": f"{place}/home", "TMPDIR": f"{place}/home",
             "PYTHONPATH": f"{place}/package"},
        capture_output=True, text=True, check=False, timeout=120, cwd="/", **AS_NOBODY,
    )  # fmt: skip


def tried(place: Path, conf: Path) -> subprocess.CompletedProcess[str]:
    """What ``validate`` says of a configuration that nginx has accepted."""
    tested = run(place, "audit", conf, "--test", "--facts", "none")
    assert "nginx -t accepts it" in tested.stdout, tested.stdout + tested.stderr
    compared = run(
        place, "-q", "validate", conf, "--against", twin(conf), "--pairs", "1", "--duration", "1s",
        "--warmup", "200ms", "--accept-inconclusive", "-f", "json",
    )  # fmt: skip
    assert compared.returncode in {0, 4}, compared.stderr
    assert not compared.stderr
    return compared


@pytest.mark.parametrize("where", ["open", pytest.param("closed", marks=pytest.mark.thorough)])
def test_temporary_files_go_to_a_directory_of_another_user(place: Path, where: str) -> None:
    site = place / "site"
    conf = place / "nginx.conf"
    conf.write_text(
        f"pid {site}/pid; error_log {site}/error.log; events {{}}\n"
        f"http {{ access_log {site}/{where}/access.log;\n"
        f"client_body_temp_path {site}/temp; proxy_temp_path {site}/{where}/temp-p;\n"
        f"fastcgi_temp_path {site}/{where}/temp;\n"
        f"server {{ listen 18089; root {site};\n"
        "location = /open/kept { } location = /closed/kept { } } }\n"
    )
    before = sorted((str(path), path.stat().st_mtime_ns) for path in site.rglob("*"))
    compared = tried(place, conf)
    assert json.loads(compared.stdout)["environment"]["differences"]
    assert sorted((str(path), path.stat().st_mtime_ns) for path in site.rglob("*")) == before


@pytest.mark.parametrize(
    "owner",
    [pytest.param(0, id="roots"), pytest.param(NOBODY, id="callers", marks=pytest.mark.thorough)],
)
def test_what_nginx_writes_beside_its_configuration_may_be_there(place: Path, owner: int) -> None:
    """A pid file and a log of a run before; the included file beside them stays in sight."""
    beside = place / f"beside-{owner}"
    beside.mkdir()
    conf, included = beside / "nginx.conf", beside / "server.conf"
    included.write_text("server { listen 18090; location / { return 204; } }\n")
    conf.write_text(
        f"pid {beside}/nginx.pid; error_log {beside}/error.log; events {{}}\n"
        f"http {{ access_log off; include {included}; }}\n"
    )
    for name in ("nginx.pid", "error.log"):
        (beside / name).write_text("12\n")
        os.chown(beside / name, owner, 0)
    os.chown(beside, owner, 0)
    tried(place, conf)
    assert [(beside / name).read_text() for name in ("nginx.pid", "error.log")] == ["12\n"] * 2
    included.write_text("server { listen 18090; no_such_thing; }\n")
    broken = run(place, "audit", conf, "--test", "--facts", "none")
    assert 'unknown directive "no_such_thing"' in broken.stdout
    assert "server.conf:1" in broken.stdout


@pytest.mark.parametrize(
    ("where", "taken"),
    [
        ("closed", True),
        ("open", False),
        pytest.param("open", True, marks=pytest.mark.thorough),
        pytest.param("closed", False, marks=pytest.mark.thorough),
    ],
)
def test_a_socket_in_a_directory_of_another_user(place: Path, where: str, taken: bool) -> None:
    """In use by another nginx, or not: the ordinary user's has its own there."""
    path = place / "site" / where / f"{taken}.sock"
    conf = place / "socket.conf"
    conf.write_text(
        "events {} http { access_log off;"
        f" server {{ listen unix:{path}; root {place}/site/{where}; }} }}\n"
    )
    with socket.socket(socket.AF_UNIX) as other:
        if taken:
            other.bind(str(path))
            other.listen()
            path.chmod(0o666)
        before = sorted(item.name for item in path.parent.iterdir())
        compared = run(
            place, "-q", "validate", conf, "--against", twin(conf), "--pairs", "1",
            "--duration", "1s", "--warmup", "200ms", "--accept-inconclusive", "-f", "json",
        )  # fmt: skip
        assert compared.returncode in {0, 4}, compared.stderr
        assert not compared.stderr
        verdict = json.loads(compared.stdout)
        rates = {one["name"]: one["candidate"] for one in verdict["metrics"]}
        assert verdict["outcome"] == "invalid" or rates["hot.requests_per_second"] > 0
        assert sorted(item.name for item in path.parent.iterdir()) == before
        other.settimeout(0)
        if taken:
            with pytest.raises(BlockingIOError):
                other.accept()


def test_a_key_that_this_user_may_not_read_is_told(place: Path) -> None:
    directory = place / "tls"
    (directory / "private").mkdir(parents=True, exist_ok=True)
    (directory / "private").chmod(0o700)
    key, conf = directory / "private" / "key.pem", directory / "nginx.conf"
    made = directory / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a",
         "-keyout", key, "-out", made],
        check=True, capture_output=True,
    )  # fmt: skip
    key.chmod(0o600)
    conf.write_text(
        "events {} http { server { listen 127.0.0.1:18443 ssl;"
        f" ssl_certificate {made}; ssl_certificate_key {key}; }} }}\n"
    )
    said = run(place, "audit", conf, "--test", "--facts", "none", "-f", "json")
    told = json.loads(said.stdout)["nginx_test"]
    assert f'cannot load certificate key "{key}"' in told["messages"][0]
    assert f"may not read {key}" in told["next_step"]
    there = conf.read_text()
    conf.write_text(there.replace(str(made), f"{place}/none/cert.pem"))
    said = run(place, "audit", conf, "--test", "--facts", "none", "-f", "json")
    told = json.loads(said.stdout)["nginx_test"]
    assert told["next_step"].startswith(f"{place}/none/cert.pem does not exist here: ")
    conf.write_text(there)
    key.chmod(0o644)
    (directory / "private").chmod(0o755)
    said = run(place, "audit", conf, "--test", "--facts", "none", "-f", "json")
    assert json.loads(said.stdout)["nginx_test"]["accepted"]
