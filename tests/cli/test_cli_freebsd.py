"""A FreeBSD host from its facts alone: its own asynchronous reads, and no thread pools (A10)."""

import json
import re
from pathlib import Path

import pytest
from command_line import RunCli
from recorded_hosts import freebsd_file

OF_THREADS = {"thread_pool", "aio_write"}


def tuned(text: str) -> list[str]:
    """The directives of a configuration that concern asynchronous reads, as they are written."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if re.match(r"(aio|aio_write|thread_pool)\s", line)]


@pytest.mark.parametrize("kind", ["static", "media", "cache", "proxy"])
def test_freebsd_reads_by_itself(run_cli: RunCli, tmp_path: Path, kind: str) -> None:
    host = freebsd_file(tmp_path)
    asked = ("--facts", host, "--kind", kind, "--root", "/media/disk1", "--root", "/media/disk2")
    said = run_cli("recommend", *asked, "-f", "json")
    assert said.returncode == 0, said.stderr
    decisions = {one["id"]: one for one in json.loads(said.stdout)["decisions"]}
    wanted = "not_applicable" if kind == "proxy" else "set"
    assert decisions["thread-pools"]["verdict"] == wanted
    written = [s for one in decisions.values() for s in one.get("settings", [])]
    assert not [s for s in written if s["directive"] in OF_THREADS]
    aio = {tuple(s["args"]) for s in written if s["directive"] == "aio"}
    assert aio == (set() if kind == "proxy" else {("on",)})

    conf = tmp_path / "nginx.conf"
    assert run_cli("generate", *asked, "-o", conf).returncode == 0
    assert set(tuned(conf.read_text())) == (set() if kind == "proxy" else {"aio on;"})

    audited = run_cli("audit", conf, "--facts", host, "-f", "json")
    assert audited.returncode == 0, audited.stdout
    assert json.loads(audited.stdout)["findings"] == []


def test_freebsd_is_not_told_to_use_threads(run_cli: RunCli, tmp_path: Path) -> None:
    """Four times the memory in files on hard disks, read without aio: ``aio on`` cures it there."""
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        "events {} http { sendfile on; sendfile_max_chunk 512k;"
        " server { listen 80; location / { root /media/disk1; } } }"
    )
    fixes: dict[str, dict[str, str]] = {}
    facts = json.loads(freebsd_file(tmp_path).read_text())
    for system in ("FreeBSD", "Linux"):
        facts["kernel"]["system"] = system
        host = tmp_path / f"{system}.json"
        host.write_text(json.dumps(facts))
        said = run_cli("audit", conf, "--facts", host, "-f", "json")
        found = json.loads(said.stdout)["findings"]
        fixes[system] = {one["rule"]: one["fix"] for one in found}
    assert "io-no-pool-cold-dataset" in fixes["Linux"]
    of_files = {rule: fix for rule, fix in fixes["FreeBSD"].items() if rule.startswith("io-")}
    assert list(of_files) == ["io-no-pool-cold-dataset"]
    assert "aio on;" in of_files["io-no-pool-cold-dataset"]
    assert "aio threads" not in of_files["io-no-pool-cold-dataset"]
