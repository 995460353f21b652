"""``nginx-tune audit`` of changes: overlays, revisions, baselines, dumps, fixes, nginx -t."""

import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from rows import each_row

Run = Callable[..., "CompletedProcess[str]"]

MAIN = "events {}\nhttp {\n  sendfile on;\n  include conf.d/*.conf;\n}\n"
SITE = "server {\n  listen 8080;\n  location / { root /srv; %s }\n}\n"
BAD = "aio threads=nope;"
NOPE = "io-pool-literal-unknown"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "nginx.conf").write_text(MAIN)
    path = tmp_path / "conf.d" / "site.conf"
    path.write_text(SITE % "")
    return path


def _git(directory: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@example", *arguments],
        cwd=directory, check=True, capture_output=True,
    )  # fmt: skip


def _rules(run: CompletedProcess[str]) -> list[str]:
    return [one["rule"] for one in json.loads(run.stdout)["findings"]]


def test_an_overlay_stands_in_for_a_file(run_cli: Run, site: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.write_text(SITE % BAD)
    for path in (site, "conf.d/site.conf", "conf.d/../conf.d/site.conf"):
        run = run_cli(
            "audit", "nginx.conf", "--overlay", f"{path}={new}", "-f", "json", cwd=tmp_path
        )
        assert run.returncode == 1
        (finding,) = json.loads(run.stdout)["findings"]
        assert (finding["rule"], finding["file"]) == (NOPE, "conf.d/site.conf")
    assert site.read_text() == SITE % "", "nothing is written"


def test_an_overlay_may_be_new_and_is_seen_through_links(
    run_cli: Run, site: Path, tmp_path: Path
) -> None:
    real = tmp_path / "available.conf"
    site.rename(real)
    site.symlink_to(real)
    new = tmp_path / "new"
    new.write_text(SITE % BAD)
    for path in (real, tmp_path / "conf.d" / "brand-new.conf"):
        run = run_cli("audit", "nginx.conf", "--overlay", f"{path}={new}", "-fjson", cwd=tmp_path)
        assert NOPE in _rules(run)
        # The new file brings a second server of the same name.
        assert ("cf-server-name-twice" in _rules(run)) == (path != real)


@each_row(
    ("arguments", "says"),
    [
        (["--overlay", "nginx.conf"], "PATH=NEW"),
        (["--overlay", "x=gone"], "gone: cannot read"),
        (["--overlay", "elsewhere.conf=nginx.conf"], "does not include"),
        (["--baseline", "gone"], "gone: cannot read"),
        (["--baseline", "nginx.conf"], "not JSON"),
        (["--diff-base", "HEAD"], "not a git repository"),
        (["--today", "tomorrow"], "YYYY-MM-DD"),
        (["--select", "nothing"], "no rule or group"),
        (["--profile", "lax"], "--profile"),
        (["--fix-diff", "-f", "json"], "--fix-diff needs standard output"),
    ],
)
def test_wrong_usage(run_cli: Run, site: Path, arguments: list[str], says: str) -> None:
    run = run_cli("audit", "nginx.conf", *arguments, cwd=site.parents[1])
    assert run.returncode == 2
    assert says in run.stderr
    assert run.stderr.count("\n") == 1


def test_a_revision_hides_what_was_there_before(
    run_cli: Run, site: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site.write_text(SITE % BAD)
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    base = ["audit", "nginx.conf", "--diff-base", "HEAD", "-f", "json"]
    assert _rules(run_cli(*base, cwd=tmp_path)) == []
    site.write_text("\n# moved\n" + SITE % BAD)
    (tmp_path / "conf.d" / "two.conf").write_text(SITE % "aio threads=other;")
    way = tmp_path_factory.mktemp("elsewhere") / "way"
    way.symlink_to(tmp_path)
    ways = (
        (tmp_path, "nginx.conf"),
        (tmp_path / "conf.d", "../nginx.conf"),
        (way, way / "nginx.conf"),
    )
    for directory, conf in ways:
        run = run_cli("audit", conf, *base[2:], cwd=directory)
        assert run.returncode == 1
        document = json.loads(run.stdout)
        assert "other" in " ".join(one["message"] for one in document["findings"])
        assert sorted(one["rule"] for one in document["findings"]) == [
            "cf-server-name-twice", NOPE,
        ]  # fmt: skip
        (old,) = document["suppressed"]
        assert (old["by"], old["reason"]) == ("revision", "was there in HEAD")
    run = run_cli("audit", "nginx.conf", "--diff-base", "no-such", cwd=tmp_path)
    assert run.returncode == 2
    assert "no such revision" in run.stderr
    assert run_cli("audit", "nginx.conf", "--diff-base=--all", cwd=tmp_path).returncode == 2


def test_a_revision_has_links_and_files_that_are_gone(
    run_cli: Run, site: Path, tmp_path: Path
) -> None:
    site.rename(tmp_path / "available.conf")
    (tmp_path / "available.conf").write_text(SITE % BAD)
    site.symlink_to("../available.conf")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    site.unlink()
    (tmp_path / "available.conf").rename(site)
    run = run_cli("audit", "nginx.conf", "--diff-base", "HEAD", "-f", "json", cwd=tmp_path)
    assert _rules(run) == []
    assert [one["by"] for one in json.loads(run.stdout)["suppressed"]] == ["revision"]


@pytest.mark.needs("root")
def test_a_revision_has_the_links_of_the_host_by_the_map(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("nt/enabled", "nt/available"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "nt/nginx.conf").write_text("events {} http { include /etc/nt/enabled/*; }")
    shop = tmp_path / "nt/available/shop"
    shop.write_text("server { sendfil on; }\n")
    (tmp_path / "nt/enabled/shop").symlink_to("/etc/nt/available/shop")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    shop.write_text("server { sendfil on; tcp_nodlay on; }\n")
    options = ("--facts", "none", "--map", "/etc/nt=nt", "--diff-base", "HEAD", "-f", "json")
    run = run_cli("audit", "nt/nginx.conf", *options)
    assert run.returncode == 1
    found = json.loads(run.stdout)
    assert ["tcp_nodlay" in one["message"] for one in found["findings"]] == [True]
    assert ["sendfil" in one["message"] for one in found["suppressed"]] == [True]


@pytest.mark.needs("root")
def test_roots_git_obeys_no_one_else_s_repository(run_cli: Run, site: Path, tmp_path: Path) -> None:
    site.write_text(SITE % BAD)
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    ran = tmp_path / "ran"
    hook = f"touch {ran}; exit 1"
    for name in ("core.fsmonitor", "core.sshCommand", "core.pager", "diff.external",
                 "uploadpack.packObjectsHook", "core.askPass", "credential.helper"):  # fmt: skip
        _git(tmp_path, "config", name, hook if name == "core.fsmonitor" else f"!{hook}")
    for path in (tmp_path, tmp_path / ".git"):
        os.chown(path, 65534, 65534)
    home = {"HOME": "/root", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*", "GIT_DIR": str(tmp_path / ".git")}  # fmt: skip
    sudo = {"SUDO_UID": "65534", "SUDO_GID": "65534", "SUDO_USER": "nobody"}
    for env in (home, sudo | home):
        run = run_cli("audit", "nginx.conf", "--diff-base", "HEAD", cwd=tmp_path, env=env)
        assert run.returncode == 2, run.stdout
        assert "dubious ownership" in run.stderr
        assert "run this as the owner" in run.stderr
        assert "Traceback" not in run.stderr
        assert not ran.exists()


def test_a_baseline_is_written_and_held_against(run_cli: Run, site: Path, tmp_path: Path) -> None:
    site.write_text(SITE % BAD)
    run = run_cli("audit", "nginx.conf", "--write-baseline", "known.json", cwd=tmp_path)
    assert run.returncode == 1
    assert str(tmp_path) not in (tmp_path / "known.json").read_text()
    run = run_cli("audit", tmp_path / "nginx.conf", "--baseline", tmp_path / "known.json")
    assert run.returncode == 0, "the same tree by another name"
    assert "1 in the baseline" in run.stdout
    site.write_text(SITE % "")
    run = run_cli("audit", "nginx.conf", "--baseline", "known.json", cwd=tmp_path)
    assert "1 of the findings in known.json are gone (update it" in run.stderr


def test_settings_of_the_file_narrow_the_audit(run_cli: Run, site: Path, tmp_path: Path) -> None:
    site.write_text(SITE % BAD + " # nginx-tune: ignore[io-chunk-unlimited] x\n")
    toml = tmp_path / "nginx-tune.toml"
    toml.write_text('[audit]\nselect = ["io", "su"]\nignore = ["io-pool-*"]\nfail-on = "info"\n')
    run = run_cli("audit", "nginx.conf", "-f", "json", cwd=tmp_path)
    assert _rules(run) == ["su-unused"] or _rules(run) == []
    assert run_cli("audit", "nginx.conf", "--ignore", "su", cwd=tmp_path).returncode == 1
    toml.write_text('[audit]\nprofile = "strict"\n')
    document = json.loads(run_cli("audit", "nginx.conf", "-f", "json", cwd=tmp_path).stdout)
    assert document["profile"] == "strict"


def test_a_suppression_ends_on_its_day(run_cli: Run, site: Path, tmp_path: Path) -> None:
    site.write_text(SITE % (BAD + f" # nginx-tune: ignore[{NOPE}] soon until=2026-12-01\n"))
    run = run_cli("audit", "nginx.conf", "--today", "2026-12-01", cwd=tmp_path)
    assert run.returncode == 0
    assert "1 by comments" in run.stdout
    run = run_cli("audit", "nginx.conf", "--today", "2026-12-02", "-f", "json", cwd=tmp_path)
    assert run.returncode == 1
    assert _rules(run)[0] == NOPE
    assert "su-expired" in _rules(run)


def test_a_dump_on_standard_input(run_cli: Run, site: Path) -> None:
    dump = (
        f"# configuration file /etc/nginx/nginx.conf:\n{MAIN}\n"
        f"# configuration file /etc/nginx/conf.d/a.conf:\n\n{SITE % BAD}\n"
    )
    run = run_cli("audit", "-", "-f", "json", stdin=dump)
    (finding,) = json.loads(run.stdout)["findings"]
    assert (finding["file"], finding["line"]) == ("/etc/nginx/conf.d/a.conf", 4)
    assert run.returncode == 1
    assert run_cli("audit", "-", stdin="events {}").returncode == 2
    for option in (["--test"], ["--diff-base", "HEAD"], ["--facts", "live"]):
        assert run_cli("audit", "-", *option, stdin=dump).returncode == 2


def test_a_saved_dump_is_read_as_the_files_in_it(run_cli: Run, site: Path, tmp_path: Path) -> None:
    said = "nginx: the configuration file /etc/nginx/nginx.conf syntax is ok\n"
    dump = (
        f"# configuration file /etc/nginx/nginx.conf:\n{MAIN}\n"
        f"# configuration file /etc/nginx/conf.d/a.conf:\n\n{SITE % BAD}\n"
    )
    saved = tmp_path / "dump.conf"
    saved.write_text(said + dump)
    run = run_cli("audit", saved, "-f", "json")
    assert run.stdout == run_cli("audit", "-", "-f", "json", stdin=dump).stdout
    (finding,) = json.loads(run.stdout)["findings"]
    assert (finding["file"], finding["line"]) == ("/etc/nginx/conf.d/a.conf", 4)
    relative = run_cli("audit", "-c", "dump.conf", "-p", tmp_path, "-f", "json", cwd=site.parent)
    assert json.loads(relative.stdout)["findings"] == [finding]
    piped = tmp_path / "pipe"
    os.mkfifo(piped)
    writer = threading.Thread(target=piped.write_text, args=(dump,))
    writer.start()
    assert run_cli("audit", piped, "-f", "json").stdout == run.stdout
    writer.join()
    for option in (["--test"], ["--diff-base", "HEAD"], ["--facts", "live"], ["--map=/x=/tmp"]):
        refused = run_cli("audit", saved, *option)
        assert refused.returncode == 2
        assert "the output of nginx -T" in refused.stderr


def test_a_file_that_only_begins_as_a_dump_is_a_configuration(run_cli: Run, site: Path) -> None:
    main = site.parents[1] / "nginx.conf"
    main.write_text(f"# configuration file /etc/nginx/nginx.conf:\n{main.read_text()}")
    files = json.loads(run_cli("audit", main, "-f", "json").stdout)["files_parsed"]
    assert files == [str(main), str(site)]


CHUNKS = "sendfile_max_chunk 0; # fast clients\n "


def test_the_fix_diff_applies_and_quiets_the_audit(
    run_cli: Run, site: Path, tmp_path: Path
) -> None:
    site.write_bytes((SITE % CHUNKS).replace("\n", "\r\n").encode() + b"# \xe9")
    old = site.read_bytes()
    audit = ("audit", "nginx.conf", "--fail-on", "warning", "--select", "io-chunk-unlimited")
    run = run_cli(*audit, "--fix-diff", "-f", "json=all.json", "-o", "fix.diff", cwd=tmp_path)
    assert run.returncode == 1, "there are findings until the diff is applied"
    assert "1 finding fixed by the diff, 0 left: patch -p1 applies it" in run.stderr
    assert site.read_bytes() == old, "nothing is written"
    assert _document(tmp_path / "all.json")["findings"][0]["edits"]
    diff = (tmp_path / "fix.diff").read_bytes()
    subprocess.run(["git", "apply"], input=diff, cwd=tmp_path, check=True)
    assert site.read_bytes() == old.replace(b"max_chunk 0;", b"max_chunk 2m;")
    run = run_cli(*audit, "--fix-diff", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (0, "")
    assert "there are no findings, so there is nothing to fix" in run.stderr


def _document(path: Path) -> dict[str, list[dict[str, object]]]:
    document: dict[str, list[dict[str, object]]] = json.loads(path.read_text())
    return document


@pytest.mark.needs("nginx", "userns")
def test_nginx_t_judges_the_overlaid_tree_and_touches_nothing(
    run_cli: Run, site: Path, tmp_path: Path
) -> None:
    log, new = tmp_path / "log", tmp_path / "new"
    log.mkdir(mode=0o777)
    site.write_text(
        "upstream app { server app.internal.example:80; }\n"
        + SITE % "proxy_pass http://app;".replace("root /srv;", "")
    )
    (tmp_path / "nginx.conf").write_text(
        f"pid {log}/pid; error_log {log}/error.log;\n"
        + MAIN.replace("http {", f"http {{ access_log {log}/access.log;")
    )
    test = ("audit", "nginx.conf", "--test", "--nginx", "/usr/sbin/nginx")
    before = _everything(tmp_path)
    run = run_cli(*test, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "nginx -t accepts it" in run.stdout
    assert _everything(tmp_path) == before, "no log, no pid file"
    new.write_text("server { listen 8080; nonsense on; }\n")
    run = run_cli(*test, "--overlay", f"conf.d/site.conf={new}", "-f", "json", cwd=tmp_path)
    assert run.returncode == 3
    said = json.loads(run.stdout)["nginx_test"]
    assert not said["accepted"]
    assert f'unknown directive "nonsense" in {site}:1' in "".join(said["messages"])
    run = run_cli(*test, "--overlay", f"conf.d/added.conf={new}", cwd=tmp_path)
    assert run.returncode == 3
    assert "added.conf:1" in run.stdout
    assert not (tmp_path / "conf.d" / "added.conf").exists()


def _everything(directory: Path) -> set[str]:
    return {str(Path(root, name)) for root, _, names in os.walk(directory) for name in names}


@pytest.mark.needs("nginx", "root")
def test_the_sandbox_has_every_address(run_cli: Run, site: Path, tmp_path: Path) -> None:
    site.write_text(
        "server { listen 10.11.12.13:80; listen [fd00::13]:443; location / { root /srv; } }\n"
    )
    (tmp_path / "nginx.conf").write_text("error_log /var/log/nginx/nt-test.log;\n" + MAIN)
    run = run_cli("audit", "nginx.conf", "--test", "--nginx", "/usr/sbin/nginx", cwd=tmp_path)
    assert "nginx -t accepts it" in run.stdout, run.stdout
    assert not Path("/var/log/nginx/nt-test.log").exists()


def test_without_an_nginx_the_test_is_undecided(run_cli: Run, site: Path, tmp_path: Path) -> None:
    run = run_cli("audit", "nginx.conf", "--test", "--nginx", tmp_path / "no", cwd=tmp_path)
    assert run.returncode in {2, 4}
    assert run.stdout == ""
