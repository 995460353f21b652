"""``recommend`` and ``generate`` as a user calls them."""

import json
import pwd
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from recorded_hosts import capture_file
from rows import each_row
from situations import FLAGS, GIBIBYTE, MEBIBYTE, dataset, host, load, nginx, site

from nginx_tune.documents.base import encode
from nginx_tune.documents.decisions import Decisions
from nginx_tune.documents.facts import Facts

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def facts_file(tmp_path: Path) -> Path:
    return write(tmp_path / "facts.json", encode(host(datasets=[dataset(GIBIBYTE, MEBIBYTE)])))


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def one_line(run: subprocess.CompletedProcess[str], status: int) -> str:
    assert run.returncode == status, (run.stdout, run.stderr)
    assert run.stderr.startswith("nginx-tune: ")
    assert run.stderr.count("\n") == 1, run.stderr
    assert "Traceback" not in run.stderr
    return run.stderr


# recommend


def test_recommend_says_everything_in_both_forms(run_cli: Run, facts_file: Path) -> None:
    run = run_cli("-v", "recommend", "--facts", facts_file, "--kind", "media")
    assert run.returncode == 0
    assert "Kind of site: media (declared)\n\nthread-pools: disable" in run.stdout
    assert "flips when  workload.dataset.bytes: " in run.stdout
    as_json = run_cli("recommend", "--facts", "-", "-f", "json", stdin=facts_file.read_text())
    decisions = msgspec.json.decode(as_json.stdout, type=Decisions)
    assert decisions.kind == "static"
    assert decisions.decisions[0].verdict == "disable"


def test_recommend_reads_a_workload_and_its_kind(
    run_cli: Run, facts_file: Path, tmp_path: Path
) -> None:
    workload = write(tmp_path / "w.json", encode(load("media", cold_peak=100)))
    run = run_cli("recommend", "--facts", facts_file, "--workload", workload, "-f", "json")
    decisions = msgspec.json.decode(run.stdout, type=Decisions)
    assert decisions.kind == "media"
    assert decisions.decisions[0].verdict == "enable"


def test_recommend_on_this_host_scans_the_named_data(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "file", b"x" * 5000)
    run = run_cli("recommend", "--dataset", tmp_path / "data", "-f", "json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    decision = json.loads(run.stdout)["decisions"][0]
    evidence = {e["fact"]: e["value"] for e in decision["evidence"]}
    assert evidence["workload.dataset.bytes"] == 5000


def test_hostile_facts_do_not_reach_the_terminal(run_cli: Run, tmp_path: Path) -> None:
    evil = host(nginx=nginx("1.26.3\x1b[31m", FLAGS))
    run = run_cli("recommend", "--facts", write(tmp_path / "f.json", encode(evil)))
    assert run.returncode == 0
    assert "\x1b" not in run.stdout


# generate


def test_the_same_inputs_give_the_same_bytes_and_check_says_so(
    run_cli: Run, facts_file: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "nginx.conf"
    arguments = ["generate", "--facts", facts_file, "--kind", "static", "--root", "/srv/1"]
    assert run_cli(*arguments, "-o", conf).returncode == 0
    first = conf.read_bytes()
    assert run_cli(*arguments).stdout.encode() == first
    assert run_cli(*arguments, cwd=tmp_path).stdout.encode() == first
    assert run_cli(*arguments, "--check", conf).returncode == 0
    conf.write_text(conf.read_text().replace("sendfile on;", "sendfile off;"))
    run = run_cli(*arguments, "--check", conf)
    assert run.returncode == 1
    assert "-    sendfile off;" in run.stdout
    assert "+    sendfile on;" in run.stdout
    assert "Traceback" not in run.stderr


def test_the_header_can_be_replayed(run_cli: Run, facts_file: Path, tmp_path: Path) -> None:
    given_site = write(tmp_path / "SITE.json", encode(site(server_names=["a.example"])))
    workload = write(tmp_path / "WORKLOAD.json", encode(load("cache")))
    write(tmp_path / "FACTS.json", facts_file.read_bytes())
    text = run_cli(
        "generate", "--facts", facts_file, "--workload", workload, "--site", given_site,
        "--cache-dir", "/data/one two", "--cache-dir", "/data/2",
    ).stdout  # fmt: skip
    line = next(line for line in text.splitlines() if line.startswith("#   nginx-tune generate"))
    words = shlex.split(line[2:])
    assert words[0] == "nginx-tune"
    assert run_cli(*words[1:], cwd=tmp_path).stdout == text


def test_live_facts_can_be_kept_for_a_replay(run_cli: Run, tmp_path: Path) -> None:
    kept = tmp_path / "facts.json"
    arguments = ["generate", "--kind", "proxy"]
    text = run_cli(*arguments, "--save-facts", kept, cwd=tmp_path).stdout
    assert run_cli(*arguments, "--facts", kept, cwd=tmp_path).stdout == text
    # An nginx in a container that comes or goes in between says nothing of this log.
    looked_at = re.findall(r"access_log (/\S+) .*buffer=", text)
    assert looked_at == [one["path"] for one in json.loads(kept.read_bytes())["access_logs"]]
    assert kept.stat().st_mode & 0o777 == 0o600


def test_toml_and_settings_file_give_the_same_site(
    run_cli: Run, facts_file: Path, tmp_path: Path
) -> None:
    table = 'server_names = ["a.example"]\nroots = ["/srv/x"]\n'
    settings = write(tmp_path / "settings.toml", f"[site]\n{table}")
    alone = write(tmp_path / "site.toml", table)
    by_file = run_cli("generate", "--facts", facts_file, "--site", alone).stdout
    by_settings = run_cli("--config", settings, "generate", "--facts", facts_file).stdout
    assert "root /srv/x;" in by_file
    assert by_file == by_settings


def test_three_disks_by_their_capture(run_cli: Run, tmp_path: Path) -> None:
    """A16: facts of a recorded node, piped."""
    facts = run_cli(
        "inspect", "--host", capture_file("three-disk-node", tmp_path), "-f", "json"
    ).stdout
    text = run_cli("generate", "--facts", "-", "--kind", "cache", stdin=facts).stdout
    for number in (1, 2, 3):
        assert f"thread_pool pool_{number} threads=16 " in text
        assert f"keys_zone=cache_{number}:" in text
    assert "aio threads=pool_$disk;" in text
    assert "proxy_cache cache_$disk;" in text
    assert text.count("proxy_cache_path ") == 3


@pytest.mark.needs("nginx", "root")
def test_three_named_directories_pass_the_real_nginx(run_cli: Run, tmp_path: Path) -> None:
    facts = run_cli(
        "inspect", "--host", capture_file("three-disk-node", tmp_path), "-f", "json"
    ).stdout
    places = [tmp_path / name for name in ("d1", "d2", "d3")]
    for place in places:
        place.mkdir()
    site_file = write(
        tmp_path / "site.json",
        encode(site(listen=["127.0.0.1:18080"], error_log=f"{tmp_path}/e", access_log="off")),
    )
    conf = tmp_path / "nginx.conf"
    run = run_cli(
        "generate", "--facts", "-", "--kind", "cache", "--site", site_file, "--nginx", "nginx",
        *[word for place in places for word in ("--cache-dir", place)], "-o", conf, stdin=facts,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    for place in places:
        assert f"proxy_cache_path {place} " in conf.read_text()


@pytest.mark.needs("nginx", "root")
def test_the_test_of_what_is_written_gives_no_directory_away(
    run_cli: Run, facts_file: Path, tmp_path: Path
) -> None:
    """Neither the one that is named nor those that the installed nginx keeps bodies in."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "keep").write_bytes(b"x")
    site_file = write(
        tmp_path / "site.json", encode(site(user="daemon", error_log=f"{tmp_path}/e"))
    )
    # Others' nginx may give the installed one's directories to their users, but not to this one.
    folders = [there, *Path("/var/lib/nginx").glob("*")]
    daemon = pwd.getpwnam("daemon").pw_uid
    assert daemon not in [folder.stat().st_uid for folder in folders]
    before = there.stat().st_mode
    conf = tmp_path / "nginx.conf"
    run = run_cli(
        "generate", "--facts", facts_file, "--kind", "cache", "--site", site_file, "--cache-dir",
        there, "--nginx", "nginx", "-o", conf,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "user daemon;" in conf.read_text()
    assert daemon not in [folder.stat().st_uid for folder in folders]
    assert there.stat().st_mode == before
    assert not (tmp_path / "e").exists()


@pytest.mark.needs("nginx", "root")
def test_what_nginx_rejects_is_not_written(run_cli: Run, facts_file: Path, tmp_path: Path) -> None:
    conf = tmp_path / "nginx.conf"
    missing = tmp_path / "no" / "such" / "place"
    run = run_cli(
        "generate", "--facts", facts_file, "--kind", "cache", "--cache-dir", missing,
        "--nginx", "nginx", "-o", conf,
    )  # fmt: skip
    assert run.returncode == 3
    assert "mkdir()" in run.stderr.splitlines()[-1]  # after what is not known of the place
    assert not conf.exists()


# bad input


@each_row("command", ["recommend", "generate"])
@each_row(
    ("content", "said"),
    [
        (None, "cannot read"),
        (b"\xff\x00junk", "not JSON"),
        (b"[]", "Expected `object`"),
        (b'{"schema": "nginx-tune/site/1"}', "found nginx-tune/site/1"),
        (b'{"schema": "nginx-tune/facts/1", "cpu": 3}', "not a valid"),
        (b'{"schema": "nginx-tune/facts/1", "cpu": {"online": 1e400}}', ""),
    ],
)
def test_unusable_facts_end_with_one_line(
    run_cli: Run, command: str, content: bytes | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "facts.json"
    if content is not None:
        write(path, content)
    assert said in one_line(run_cli(command, "--facts", path), 2)


@each_row(
    ("arguments", "said"),
    [
        (["--kind", "blog"], "'blog' is not one of"),
        (["--kind", "cache", "--cache-dir", "/a\nb"], "control characters"),
        (["--kind", "cache", "--cache-dir", "/a$b"], "'$' cannot be written"),
        (["--kind", "cache", "--cache-dir", "a"], "not an absolute path"),
        (["--root", "a"], "not an absolute path"),
        (["--site", "/no/such"], "cannot read"),
        (["--workload", "/no/such"], "cannot read"),
        (["--dataset", "/srv"], "the facts are of another one"),
        (["--check", "/no/such"], "cannot read"),
        (["--check", "/a", "-o", "/b"], "--check writes nothing"),
        (["-f", "yaml"], "unknown format"),
        (["--nginx", "/no/such/nginx"], "cannot run nginx"),
        (["-o", "/no/such/folder/nginx.conf"], "cannot write"),
    ],
)
def test_wrong_calls_end_with_one_line(
    run_cli: Run, facts_file: Path, arguments: list[str], said: str
) -> None:
    assert said in one_line(run_cli("generate", "--facts", facts_file, *arguments), 2)


def test_roots_that_are_searched_in_turn_are_named(run_cli: Run, facts_file: Path) -> None:
    roots = [word for number in range(1, 5) for word in ("--root", f"/srv/{number}")]
    run = run_cli("generate", "--facts", facts_file, *roots)
    assert run.returncode == 0, run.stderr
    assert "in the last one needs 4 look-ups ([site] root_prefixes" in run.stderr
    assert "# A request looks in one root after the other" in run.stdout
    one = run_cli("generate", "--facts", facts_file, *roots[:2])
    assert "root_prefixes" not in one.stderr + one.stdout


def test_a_build_without_threads_gets_a_configuration_without_pools(
    run_cli: Run, tmp_path: Path
) -> None:
    facts: Facts = host(
        nginx=nginx(flags=["--with-http_ssl_module"]), datasets=[dataset(4096 * GIBIBYTE, MEBIBYTE)]
    )
    run = run_cli("generate", "--facts", write(tmp_path / "f.json", encode(facts)), "-f", "md")
    assert run.returncode == 0
    assert "aio threads: No thread pools: this nginx is built without --with-threads." in run.stdout
    assert "aio threads;" not in run.stdout


def reading_on(tmp_path: Path) -> list[str | Path]:
    """The arguments for a host whose hard disk reads on for too short."""
    facts = host(datasets=[dataset(900 * GIBIBYTE, 16 * MEBIBYTE)])
    disks = [msgspec.structs.replace(d, read_ahead_bytes=128 << 10) for d in facts.storage.disks]
    facts = msgspec.structs.replace(
        facts, storage=msgspec.structs.replace(facts.storage, disks=disks)
    )
    asked = load(data_bytes=900 * GIBIBYTE, file_bytes=16 * MEBIBYTE, rate=20.0, peak=40)
    return [
        "generate",
        *("--facts", write(tmp_path / "facts.json", encode(facts))),
        *("--workload", write(tmp_path / "workload.json", encode(asked))),
        *("--root", "/srv/1"),
    ]


def test_what_is_of_the_host_lies_beside_the_file(run_cli: Run, tmp_path: Path) -> None:
    """Read-ahead is the largest lever on hard disks, and no line of nginx reaches it."""
    (folder := tmp_path / "out").mkdir()
    arguments = reading_on(tmp_path)
    assert run_cli(*arguments, "-o", folder).returncode == 0
    text = (folder / "nginx.conf").read_text()
    assert (
        "#   read-ahead of sda: 128 -> 1024 KiB; until a reboot: blockdev --setra 2048 /dev/sda"
        in text
    )
    rule = (folder / "host/etc/udev/rules.d/60-nginx-tune.rules").read_text()
    assert 'KERNEL=="sda", ATTR{queue/read_ahead_kb}="1024"' in rule
    assert "# Undo: sudo rm /etc/udev/rules.d/60-nginx-tune.rules" in rule
    page = run_cli(*arguments, "-f", "md").stdout
    assert text.rstrip() in page
    assert rule.rstrip() in page
    run_cli(*arguments, "-o", folder, "-f", "md")
    assert (folder / "nginx.md").read_text() == page
    assert (folder / "nginx.conf").read_text() == text


def test_a_link_in_the_way_is_not_followed(run_cli: Run, tmp_path: Path) -> None:
    (folder := tmp_path / "out").mkdir()
    (other := tmp_path / "other").mkdir()
    (folder / "host").symlink_to(other)
    assert "a link" in one_line(run_cli(*reading_on(tmp_path), "-o", folder), 2)
    assert not list(other.iterdir())


def test_a_file_alone_has_nothing_beside_it(run_cli: Run, tmp_path: Path) -> None:
    (folder := tmp_path / "out").mkdir()
    run_cli(*reading_on(tmp_path), "-o", folder / "my.conf")
    assert [path.name for path in folder.rglob("*")] == ["my.conf"]
