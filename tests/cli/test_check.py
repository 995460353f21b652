"""The first look: one screen for a configuration and its host."""

import json
import re
import shlex
from pathlib import Path

import pytest
from command_line import RunCli
from situations import GIBIBYTE, host, load, measured
from started import running

from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import Nginx
from nginx_tune.errors import ExitStatus

CONF = """\
worker_processes auto;
worker_rlimit_nofile 65536;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    {http}
    server {{ listen 127.0.0.1:18961; root {root}; }}
}}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    conf = tmp_path / "nginx.conf"
    conf.write_text(CONF.format(http="", root=tmp_path / "root"))
    return conf


def _facts(tmp_path: Path, **named: object) -> Path:
    file = tmp_path / "facts.json"
    file.write_bytes(encode(host(**named)))  # type: ignore[arg-type]
    return file


def _checked(run_cli: RunCli, *words: object, status: int = 0) -> dict[str, object]:
    run = run_cli("check", *words, "-f", "json")
    assert run.returncode == status, run.stderr
    found: dict[str, object] = json.loads(run.stdout)
    return found


def _switches(check: dict[str, object]) -> dict[str, tuple[str, bool]]:
    every: list[dict[str, object]] = check["switches"]  # type: ignore[assignment]
    return {str(one["name"]): (str(one["verdict"]), bool(one["differs"])) for one in every}


def _workload(tmp_path: Path, gibibytes: int) -> Path:
    file = tmp_path / "workload.json"
    file.write_bytes(encode(load(data_bytes=gibibytes * GIBIBYTE)))
    return file


def test_data_within_memory_leaves_pools_off(run_cli: RunCli, tree: Path, tmp_path: Path) -> None:
    facts, workload = _facts(tmp_path), _workload(tmp_path, 4)
    found = _checked(run_cli, tree, "--facts", facts, "--workload", workload)
    assert _switches(found)["thread pools"] == ("off", False)


def test_data_beyond_memory_turns_them_on_and_plan_comes_next(
    run_cli: RunCli, tree: Path, tmp_path: Path
) -> None:
    facts, workload = _facts(tmp_path), _workload(tmp_path, 4000)
    found = _checked(run_cli, tree, "--facts", facts, "--workload", workload)
    assert _switches(found)["thread pools"] == ("on", True)
    assert found["next_command"] == (
        f"nginx-tune plan {tree} --facts {facts} --workload {workload}"
    ), "for the host that was looked at"


def test_disks_that_decide_are_measured_first(run_cli: RunCli, tree: Path, tmp_path: Path) -> None:
    busy = load(data_bytes=900 * GIBIBYTE, file_bytes=4 << 20, rate=400.0, peak=900)
    (asked := tmp_path / "workload.json").write_bytes(encode(busy))
    facts = _facts(tmp_path, disk_class="network", page_cache_bytes=16 * GIBIBYTE)
    check = _checked(run_cli, tree, "--facts", facts, "--workload", asked)
    assert _switches(check)["thread pools"] == ("on", True), "as plan writes it"
    assert str(check["next_command"]).startswith("nginx-tune inspect --dataset ")
    assert " --disks --disk-seconds 10" in str(check["next_command"])
    last = check["also"][-1]  # type: ignore[index]
    assert last["command"] == f"nginx-tune plan {tree} --facts {facts} --workload {asked}"


def test_whatever_is_to_be_measured_has_its_command(
    run_cli: RunCli, tree: Path, tmp_path: Path
) -> None:
    facts = _facts(tmp_path)
    logs = "access_log /srv/own.log; server { access_log /srv/other.log; }"
    tree.write_text(tree.read_text().replace("access_log off;", logs))
    check = _checked(run_cli, tree, "--facts", facts)
    also: list[dict[str, str]] = check["also"]  # type: ignore[assignment]
    steps = {str(check["next_command"]): str(check["next_reason"])}
    steps |= {step["command"]: step["reason"] for step in also}
    wanted = {name for name, (verdict, _) in _switches(check).items() if verdict == "measure"}
    assert wanted == {"thread pools", "reuseport"}
    (inspect,) = (command for command in steps if command.startswith("nginx-tune inspect"))
    assert f"--dataset {tree.parent / 'root'} " in inspect
    assert (
        steps[inspect] == f"on that host, settle thread pools, then check {tree} --facts facts.json"
    )
    (learn,) = (command for command in steps if command.startswith("nginx-tune learn"))
    assert learn == "nginx-tune learn /srv/own.log /srv/other.log -f json -o workload.json"
    assert steps[learn].endswith(
        f"settle reuseport, then check {tree} --facts {facts} --workload workload.json"
    ), "what is known stays"


def test_a_link_is_added_to_the_facts_at_hand(run_cli: RunCli, tree: Path, tmp_path: Path) -> None:
    for source in ("--facts", _facts(tmp_path)), ("--facts", "live"), ():
        known, found = (
            json.loads(run_cli("check", tree, *source, *words, "-f", "json").stdout)["host"]
            for words in ((), ("--link", "3G"))
        )
        assert (found["cpus"], found["nginx"]) == (known["cpus"], known["nginx"])
        assert found["link_bits_per_second"] == 3 * 10**9


def test_an_audit_of_what_was_read_here_reads_it_again(run_cli: RunCli, tree: Path) -> None:
    tree.write_text(CONF.format(http="sendfile_max_chunk 1q;", root=tree.parent))
    found = _checked(run_cli, tree, status=1)
    assert found["next_command"] == f"nginx-tune audit {tree} --facts live"
    steps: list[dict[str, str]] = found["also"]  # type: ignore[assignment]
    assert any(step["command"].startswith(f"nginx-tune learn -c {tree} ") for step in steps)


def test_what_settles_a_described_host_keeps_the_configuration(run_cli: RunCli, tree: Path) -> None:
    host = ("--cpus", "8", "--memory", "16G", "--disk", "hdd", "--data", "200G", "--rate", "20")
    for words in ("recommend", "-c", tree), ("check", tree):
        shown = run_cli(*words, *host).stdout
        assert re.search(
            rf"^Next .*: nginx-tune recommend -c {tree} --nginx-version VER", shown, re.MULTILINE
        )


def test_the_next_commands_read_a_checkout_as_it_was_read(run_cli: RunCli, tree: Path) -> None:
    tree.write_text(CONF.format(http="include /etc/nt/*.conf;", root=tree.parent))
    asked = ("--map", f"/etc/nt={tree.parent}/none", "--accept-missing", "/etc/nt/*.conf")
    run = run_cli("check", tree, *asked, "-f", "json")
    assert "the host shown is this machine" in run.stderr
    found = json.loads(run.stdout)
    steps = [{"command": found["next_command"], "reason": found["next_reason"]}, *found["also"]]
    words = shlex.join(asked)
    [learn] = [step["command"] for step in steps if "nginx-tune learn" in step["command"]]
    assert learn.startswith(f"nginx-tune learn -c {tree} {words} ")
    for then in (step["reason"] for step in steps if "then check" in step["reason"]):
        assert words in then


def test_the_screen_names_four_parts_of_the_host_and_four_switches(
    run_cli: RunCli, tree: Path, tmp_path: Path
) -> None:
    facts, workload = _facts(tmp_path), _workload(tmp_path, 4)
    run = run_cli("check", tree, "--facts", facts, "--workload", workload)
    lines = run.stdout.splitlines()
    assert " the first limit, at about " in lines[0]  # what binds comes before all
    lines = lines[2:]
    assert [line.split()[0] for line in lines[:4]] == ["memory", "disks", "link", "nginx"]
    names = ("thread pools", "pool per disk", "sendfile_max_chunk", "reuseport")
    assert all(line.startswith(name) for name, line in zip(names, lines[5:9], strict=True))
    assert re.match(r"Next \(.*\): nginx-tune ", lines[-1])
    assert len(lines) <= 22  # a screen


def test_the_rate_of_a_measured_disk_is_shown(run_cli: RunCli, tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    file.write_bytes(encode(measured(host(), 8e-3, 1e9)))
    run = run_cli("check", tree, "--facts", file)
    assert re.search(r"^disks +.*, 123 reads/s", run.stdout, re.MULTILINE), run.stdout


def test_every_root_beside_a_cache_is_named_to_be_counted(
    run_cli: RunCli, tree: Path, tmp_path: Path
) -> None:
    cached = f"""proxy_cache_path {tmp_path}/cache keys_zone=one:10m max_size=1g;
    server {{ listen 127.0.0.1:18962; location / {{ proxy_pass http://127.0.0.1:1;
    proxy_cache one; }} }}"""
    tree.write_text(CONF.format(http=cached, root=tmp_path / "root"))
    run = run_cli("check", tree, "--facts", _facts(tmp_path))
    places = f"--cache-dir {tmp_path}/cache --dataset {tmp_path}/root"
    assert f"nginx-tune inspect {places} " in run.stdout


def test_an_error_is_shown_and_is_the_status(run_cli: RunCli, tree: Path, tmp_path: Path) -> None:
    tree.write_text(CONF.format(http="sendfile_max_chunk 1q;", root=tmp_path))
    found = _checked(run_cli, tree, "--facts", _facts(tmp_path), status=1)
    assert found["findings"][0]["severity"] == "error"  # type: ignore[index]
    assert str(found["next_command"]).startswith(f"nginx-tune audit {tree} --facts ")


def test_it_counts_what_audit_finds(run_cli: RunCli, tree: Path, tmp_path: Path) -> None:
    """Without the rules of other profiles, and with expired and unused suppressions."""
    late = "aio on;  # nginx-tune: ignore[io-*] a fault until=2020-01-01"
    tree.write_text(CONF.format(http=f"sendfile_max_chunk 0; multi_accept on;\n{late}\n", root="/"))
    nginx = Nginx(
        nginx_version="1.22.1", flags=["--with-threads", "--with-http_stub_status_module"]
    )
    facts = _facts(tmp_path, nginx=nginx)
    run = run_cli("audit", tree, "--facts", facts, "-f", "json")
    severities = [finding["severity"] for finding in json.loads(run.stdout)["findings"]]
    assert len(set(severities)) > 1
    found = _checked(run_cli, tree, "--facts", facts, status=run.returncode)
    counts = {name: severities.count(name) for name in severities}
    assert found["findings_by_severity"] == counts


def test_what_was_not_read_is_no_pass(run_cli: RunCli, tree: Path, tmp_path: Path) -> None:
    tree.write_text(CONF.format(http="include /srv/nowhere/*.conf;", root=tmp_path))
    found = _checked(run_cli, tree, "--facts", _facts(tmp_path), status=4)
    assert found["files_not_read"] == 1


def test_files_here_are_counted_as_for_recommend(run_cli: RunCli, tree: Path) -> None:
    """The verdict and its figure of each switch, and the first limit, are the same."""
    (tree.parent / "root/file").write_bytes(bytes(4 << 20))
    found = json.loads(run_cli("check", tree, "--facts", "live", "-f", "json").stdout)
    run = run_cli("recommend", "-c", tree, "--facts", "live")
    assert found["host"]["data_bytes"] == 4 << 20
    assert "fits in the page cache (4.0 MiB of " in run.stdout
    assert _switches(found)["thread pools"] == ("off", False)
    assert str(found["binding"]).partition("(")[0] == run.stdout.partition("(")[0]


@pytest.mark.needs("root", "nginx")
def test_recommend_and_size_are_about_the_nginx_that_runs(
    run_cli: RunCli, tree: Path, free_port: int
) -> None:
    """generate writes a new site, and says so."""
    (tree.parent / "root/file").write_bytes(bytes(4 << 20))
    served = f"user root; {tree.read_text()}".replace("18961", f"{free_port}")
    tree.write_text(served)
    pid = f"pid {tree.parent}/pid; daemon off; error_log stderr;"
    with running(["nginx", "-c", str(tree), "-g", pid]):
        screen = run_cli("check").stdout
        assert "4.0 MiB of data" in screen
        (limit,) = re.findall(r"about (.* requests/s)", screen)
        found = run_cli("recommend")
        assert found.stderr.startswith(f"nginx-tune: for {tree}, the configuration of this ")
        assert limit in found.stdout
        assert "Next: nginx-tune plan -f json=plan.json" in found.stdout
        sizing = json.loads(run_cli("size", "-f", "json").stdout)
        values = {item["fact"]: item["value"] for item in sizing["evidence"]}
        assert values["workload.dataset.bytes"] == 4 << 20
        named = run_cli("recommend", "--root", tree.parent / "root")
        assert "Next: nginx-tune generate" in named.stdout
        assert f"not for the sites of {tree} (" in run_cli("generate").stderr
        inspected = run_cli("inspect", "-f", "json", "-o", tree.parent / "host.json")
        unscanned = f"served files were not counted (add --dataset {tree.parent / 'root'})"
        assert unscanned in inspected.stderr
        assert "not counted" not in run_cli("inspect", "--dataset", tree.parent).stderr


def test_a_root_that_is_not_here_is_no_empty_one(
    run_cli: RunCli, tree: Path, tmp_path: Path
) -> None:
    """Neither is one that is here, for a configuration that is not meant for this host."""
    (tmp_path / "root/file").write_bytes(bytes(4096))
    counted = run_cli("check", tree, "--facts", "live").stdout
    assert "data not known" not in counted
    elsewhere = run_cli("check", tree).stdout
    tree.write_text(CONF.format(http="", root=tmp_path / "absent"))
    for screen in (elsewhere, run_cli("check", tree, "--facts", "live").stdout):
        assert "the size of the data" in screen.splitlines()[0]
        assert "data not known" in screen
        assert "thread pools        off" not in screen


def test_without_a_command_it_is_the_first_look(run_cli: RunCli) -> None:
    """By its rows' names: what a live host has used moves between two looks."""
    shown = [_names(run_cli(*words).stdout) for words in ((), ("check",), ("-q",))]
    assert shown[0][:4] == ["memory", "disks", "link", "nginx"]
    assert shown[0] == shown[1] == shown[2]
    assert run_cli("--help").stdout.startswith("Usage: ")


def _names(screen: str) -> list[str]:
    return [line.split("  ")[0] for line in screen.splitlines()[2:11]]


def test_a_declared_kind_decides_as_it_does_for_recommend(run_cli: RunCli) -> None:
    described = ("--cpus", "16", "--memory", "64G", "--disk", "hdd:4:8TB", "--data", "20TB",
                 "--kind", "media")  # fmt: skip
    recommended = json.loads(run_cli("recommend", *described, "-f", "json").stdout)
    check = _checked(run_cli, *described)
    assert check["binding"] == recommended["binding"]
    assert check["binding"] != _checked(run_cli, *described[:-2])["binding"]


def test_files_that_cannot_be_parsed_leave_room_for_the_host(
    run_cli: RunCli, tree: Path, tmp_path: Path
) -> None:
    for name in "abcde":
        (tmp_path / f"{name}.conf").write_text("}")
    late = "sendfile_max_chunk 1q;"
    tree.write_text(CONF.format(http=f"{late} include {tmp_path}/[a-e].conf;", root="/"))
    run = run_cli("check", tree, "--facts", _facts(tmp_path))
    assert run.returncode == 3
    assert run.stdout.count("cannot be parsed") == 4
    assert "\n2 more files cannot be parsed\n\nmemory " in run.stdout
    assert "1 error" in run.stdout
    assert "thread pools" not in run.stdout


@pytest.mark.parametrize("name", ["nginx.conf", "\udcff.conf"])
def test_names_that_are_not_utf_8_are_shown_with_escapes(
    run_cli: RunCli, tree: Path, tmp_path: Path, name: str
) -> None:
    tree.unlink()
    conf = tmp_path / name
    conf.write_text(CONF.format(http="", root="/srv/caf\udce9"), errors="surrogateescape")
    out = tmp_path / "out.txt"
    for words in (
        ("check", conf),
        ("check", conf, "-o", out),
        ("check", conf, "-f", f"console={out}"),
        ("recommend", "-c", conf),
        ("recommend", "--root", f"{tmp_path}/\udce9"),
    ):
        run = run_cli(*words)
        shown = run.stdout or out.read_text()
        assert "internal error" not in run.stderr, words
        assert run.returncode != ExitStatus.UNDECIDED, words
        assert "\\udc" in shown, words
