"""A settings file that was found holds preferences and inputs below its directory, nothing else.

Every option of every command is either on the program's list or named here as refused: a new one
fails until somebody has decided.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import click
import pytest
from command_line import RunCli
from recorded_hosts import facts_file
from rows import each_row
from unprivileged import AS_NOBODY, copy_package, interpreter

from nginx_tune.cli.inputs import read_bytes
from nginx_tune.cli.main import cli, main
from nginx_tune.cli.settings import ALLOWED, SITE_TABLE, setting_names
from nginx_tune.documents.site import Site
from nginx_tune.errors import UsageError

FACTS = facts_file("three-disk-node")
DOCS = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
NAME = "nginx-tune.toml"

_TRIED = "nginx trust weaker_sandbox"
_DESCRIBED = "cpus memory disk link data mean_size"
_ASKED = f"site dataset cache_dir nginx trust output {_DESCRIBED}"
REFUSED = {
    "inspect": "dataset path cache_dir nginx trust pid link_speed volume dataset_seconds "
    "dataset_sample utilisation disks disk_seconds disk_read force with_config capture host output",
    "check": f"c p nginx trust output {_DESCRIBED}",
    "collector": "output",
    "observe": "duration pid tracing queue_wait no_stub_status output",
    "compare": "control accept_inconclusive output",
    "learn": "c p map accept_missing manifest manifest_requests keep_paths with_query partial "
    "key_file partials engine allow_unencrypted log_host output",
    "recommend": f"{_ASKED} conf p",
    "size": _ASKED,
    "generate": f"{_ASKED} check save_facts",
    "plan": f"{_ASKED} c p test weaker_sandbox",
    "audit": f"{_TRIED} {_DESCRIBED} c p pid overlay plan write_baseline diff_base fix_diff test "
    "today output",
    "explain": "list facts workload conf p output",
    "probe": "connections rate duration warmup threads paths_from header status timeout keepalive "
    "http2 http3 streams insecure cacert objective stripe start_at allow_live allow_target cap "
    "output",
    "merge": "manifest partial output",
    "validate": f"{_TRIED} c p against plan lab scale accept_worse accept_lost starts http2 http3 "
    "manifest speed self_check search dry_run accept_inconclusive against_nginx no_store output",
    "rehearse": f"{_TRIED} c plan p new_nginx restart reload back rate idle active before after "
    "drain sysctl lab scale no_store output",
    "apply": "overlay c p nginx trust pid watch canary confirm reload_command reload_time "
    "no_reload managed_anyway accept_lost dry_run diff state_dir output",
    "confirm": "state_dir output",
    "rollback": "recover leave state_dir output",
    "history": "state_dir output",
    "scenario.list": "rows output",
    "scenario.run": f"{_TRIED} against_nginx no_store output",
    "runs.list": "output",
    "runs.show": "output",
    "report": "output",
    "lab.list": "output",
    "lab.clean": "images output",
    "doctor": "output",
    "schema": "output",
    SITE_TABLE: "schema cache_dirs cache_bounds tls user error_log access_log other_access_logs "
    "piped_logs plain_logs roots_apart",
}
"""What only a flag, the environment or a file that is named may set."""
REFUSED_NAMES = [f"{place}.{name}" for place, names in REFUSED.items() for name in names.split()]
ALLOWED_NAMES = [f"{place}.{name}" for place, rules in ALLOWED.items() for name in rules]


def every_setting() -> Iterator[str]:
    context = click.Context(cli)
    groups = set()
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            groups |= {f"{name}.{below}" for below in command.commands}
        yield from (one for one in setting_names(command, name) if one not in groups)
    yield from (f"{SITE_TABLE}.{field}" for field in ("schema", *Site.__struct_fields__))


def write(directory: Path, text: str) -> Path:
    path = directory / NAME
    path.write_text(text)
    return path


def toml(name: str, value: str) -> str:
    place, _, key = name.rpartition(".")
    return f"[{place}]\n{key} = {value}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, without links on the way: as the program gets it."""
    monkeypatch.chdir(tmp_path)
    return Path.cwd()


def test_each_setting_has_been_decided() -> None:
    """A new option is refused; say so in REFUSED, or put it on the list with its rule."""
    assert sorted(every_setting()) == sorted([*ALLOWED_NAMES, *REFUSED_NAMES])


@pytest.mark.long
@each_row("name", REFUSED_NAMES)
def test_what_is_not_on_the_list_is_refused_whatever_command_is_called(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    place, _, key = name.rpartition(".")
    nested = "".join(f"{{ {part} = " for part in place.split(".")[1:])
    ends = " }" * (len(place.split(".")) - 1)
    first = place.split(".")[0]
    turn = REFUSED_NAMES.index(name)
    # Each way of spelling, form of table and command, in turn: no name has a rule of its own.
    for spelt in (key, key.replace("_", "-"), f'"{key}"'):
        turn += 1
        text = (
            f"[{place}]\n{spelt} = true\n",
            f'{place}.{spelt} = ["x"]\n',
            f"{first} = {nested}{{ {spelt} = {{ }} }}{ends}\n",
        )[turn % 3]
        file = write(here, text)
        called = "schema" if turn % 2 else first if first != SITE_TABLE else "generate"
        assert main([called, "facts"]) == 2
        said = capsys.readouterr()
        assert f"{place}.{spelt.strip(chr(34))}" in said.err, (text, said.err)
        assert f"--config {file}" in said.err
        assert said.err.count("\n") == 1
        assert not said.out


@pytest.mark.long
@each_row("name", ALLOWED_NAMES)
def test_what_is_on_the_list_is_taken(here: Path, name: str) -> None:
    """A text that is no path: whether the option has such a value, its command says."""
    write(here, toml(name, '"x"' if name != "audit.map" else '"/x=x"'))
    assert main(["schema", "facts"]) == 0 or name == "schema.format"


def test_one_line_names_all_that_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(
        here,
        '[audit]\nnginx = "./evil.sh"\nformat = ["json", "console=x"]\nselekt = "io"\n'
        'ignore = "io"\n[probe]\nallow-live = true\n[site]\nmime_types = "../x"\n'
        '[scenario]\nrun.no_store = true\nnginx = "x"\n',
    )
    assert main(["audit", "no.conf"]) == 2
    assert capsys.readouterr().err == (
        f"nginx-tune: {file} was found by searching upward, not named with --config, "
        "so it may not set audit.nginx, "
        "audit.format (names a file to write), audit.selekt (no such setting), probe.allow-live, "
        "site.mime_types (leads out of its directory), scenario.run.no_store, scenario.nginx "
        f"(if you trust the file, name it: --config {file})\n"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[audit]\nfacts = "/etc/passwd"', "is an absolute path"),
        ('[audit]\nfacts = "../facts.json"', "leads out of its directory"),
        ('[audit]\nfacts = "sub/../../facts.json"', "leads out of its directory"),
        ('[audit]\nfacts = "link"', "leads through a link"),
        ('[audit]\nfacts = "sub/up/facts.json"', "leads through a link"),
        ('[audit]\nfacts = "live"', "asks this host"),
        ('[audit]\nfacts = "-"', "is standard input"),
        ('[audit]\nfacts = "a\\u0000b"', "is not the name of a file"),
        ("[audit]\nfacts = 3", "is not the name of a file"),
        ("[audit]\nbaseline = 2026-01-01", "is not the name of a file"),
        ('[audit]\nbaseline = ["facts.json", "link"]', "leads through a link"),
        ('[audit]\nmap = ["/a=sub", "/b=/etc"]', "is an absolute path"),
        ('[audit]\nmap = "/b=sub/up"', "leads through a link"),
        ('[audit]\nformat = "console=.bashrc"', "names a file to write"),
        ('[plan]\nroot = "/srv/www"', "is an absolute path"),
        ('[site]\nroots = ["sub", "/etc"]', "is an absolute path"),
        ('[site]\nmime_types = "/etc/passwd"', "is an absolute path"),
        ('[site]\nlisten = ["unix:/run/x.sock"]', "names a socket"),
        ('[site]\nfeatures = ["php=unix:/run/x.sock"]', "names a file or a socket"),
        ('[site]\nfeatures = ["websocket=/ws/", "uploads=1G:/etc"]', "names a file"),
        ('[[site.upstreams]]\nname = "o"\nservers = ["a", "UNIX:/run/x.sock"]', "names a socket"),
    ],
)
def test_values_that_lead_elsewhere_are_refused(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "up").symlink_to("..")
    (here / "link").symlink_to("/etc/passwd")
    (here / "facts.json").write_text("{}")
    write(here, text)
    assert main(["schema", "facts"]) == 2
    assert f"({why}" in capsys.readouterr().err


def test_inputs_are_those_beside_the_file(run_cli: RunCli, tmp_path: Path) -> None:
    """Wherever below it the command is called; a file of the same name there is another one."""
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (below / "f.json").write_text("no facts")
    shutil.copy(FACTS, tmp_path / "a" / "f.json")
    (tmp_path / "a" / "public").mkdir()
    write(
        tmp_path / "a",
        '[generate]\nfacts = "./f.json"\n[site]\nroots = ["public"]\nserver_names = ["a.example"]',
    )
    run = run_cli("generate", cwd=below)
    assert f"root {tmp_path / 'a' / 'public'};" in run.stdout, run.stderr
    assert "server_name a.example;" in run.stdout


def test_a_link_that_came_later_is_not_followed(here: Path) -> None:
    """What stands at the name is looked at again as it is opened."""
    (here / "sub").mkdir()
    (here / "sub" / "f.json").write_text("{}")
    write(here, '[audit]\nfacts = "sub/f.json"\n')
    assert main(["schema", "facts"]) == 0
    path = here / "sub" / "f.json"
    assert read_bytes(str(path)) == b"{}"
    secret = here / "secret"
    secret.write_text("secret")
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(UsageError, match="cannot read: leads through a link"):
        read_bytes(str(path))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match="not a file"):
        read_bytes(str(path))
    shutil.rmtree(here / "sub")
    (here / "other").mkdir()
    (here / "other" / "f.json").write_text("secret")
    (here / "sub").symlink_to("other")
    with pytest.raises(UsageError, match="cannot read"):
        read_bytes(str(path))


@pytest.mark.needs("root")
def test_root_takes_no_input_of_another_user(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "f.json").write_text("{}")
    os.chown(here / "f.json", 65534, 65534)
    write(here, '[audit]\nfacts = "f.json"\n')
    assert main(["schema", "facts"]) == 2
    assert "audit.facts (" in capsys.readouterr().err


def test_the_settings_that_a_found_file_made_are_told(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "n.conf").write_text("events {}\n")
    file = write(tmp_path, '[audit]\nformat = "json"\nselect = ["io"]\nfail_on = "never"\n')
    ask = ("audit", tmp_path / "n.conf", "--facts", "none")
    run = run_cli(*ask, cwd=tmp_path)
    said = f"nginx-tune: settings from {file}: audit.select, audit.fail-on, audit.format\n"
    assert run.stderr == said
    assert json.loads(run.stdout)["findings"] == []
    assert run_cli("-q", *ask, cwd=tmp_path).stderr == ""
    env = {"NGINX_TUNE_AUDIT_FAIL_ON": "error"}
    run = run_cli(*ask, "--select", "su", cwd=tmp_path, env=env)
    assert run.stderr == f"nginx-tune: settings from {file}: audit.format\n"
    assert run_cli("--config", file, *ask, cwd=tmp_path).stderr == ""


def test_the_site_of_a_found_file_is_told_where_it_is_used(run_cli: RunCli, tmp_path: Path) -> None:
    file = write(tmp_path, '[site]\nserver_names = ["a"]\n[scenario.list]\nformat = "json"\n')
    (tmp_path / "s.toml").write_text("")
    ask = ("recommend", "--facts", FACTS)
    said = f"nginx-tune: settings from {file}: "
    assert run_cli(*ask, cwd=tmp_path).stderr == f"{said}site.server_names\n"
    assert run_cli(*ask, "--site", "s.toml", cwd=tmp_path).stderr == ""
    assert run_cli("scenario", "list", cwd=tmp_path).stderr == f"{said}scenario.list.format\n"


def test_the_page_lists_what_the_program_takes() -> None:
    rows = re.findall(r"^\| (`\[.*?\]`) \| (.*) \|$", DOCS.read_text(), re.MULTILINE)
    listed = {
        f"{place}.{name.replace('-', '_')}"
        for places, names in rows
        for place in re.findall(r"`\[([a-z.]+)\]`", places)
        for name in re.findall(r"`([a-z0-9_-]+)`", names)
    }
    assert listed == set(ALLOWED_NAMES)


# The attack: a repository whose settings name a program, a result and what guards are to let.

_EVIL = """#!/bin/sh
echo "ran as $(id -u): $*" >> "$0.ran"
echo "nginx version: nginx/1.26.0" >&2
echo "configure arguments: --prefix=/usr/share/nginx --conf-path=/etc/nginx/nginx.conf" >&2
"""
_CALLS = {
    "inspect": [],
    "recommend": [],
    "size": [],
    "generate": [],
    "plan": ["nginx.conf"],
    "audit": ["nginx.conf"],
    "validate": ["nginx.conf", "--against", "nginx.conf", "--dry-run", "--no-store"],
    "rehearse": ["nginx.conf", "nginx.conf", "--no-store"],
    "scenario.run": ["thread-pools", "--no-store"],
    "apply": ["nginx.conf"],
}
"""The commands that take ``--nginx``."""


@pytest.fixture
def repository() -> Iterator[Path]:
    """Where everybody may look, and root alone may write or the caller."""
    with tempfile.TemporaryDirectory(prefix="nginx-tune-found-", dir="/var/tmp") as place:
        path = Path(place, "repository")
        path.mkdir()
        Path(place).chmod(0o755)
        (path / "nginx.conf").write_text("events {}\nhttp { server { listen 8080; } }\n")
        (path / "evil.sh").write_text(_EVIL)
        (path / "evil.sh").chmod(0o755)
        (path / "kept").write_text("kept\n")
        yield path


def attacked(
    repository: Path, call: Callable[[list[str]], CompletedProcess[str]], *, each: int = 1
) -> None:
    """Each command is called beside such a settings file, and nothing may come of it."""
    settings = [(place, 'nginx = "./evil.sh"') for place in _CALLS] + [
        ("recommend", f'nginx = "{repository}/evil.sh"\ntrust = true'),
        ("audit", f'output = "{repository}/kept"'),
        ("audit", f'format = ["json={repository}/kept"]'),
    ]
    for place, setting in settings[::each]:
        write(repository, f"[{place}]\n{setting}\n")
        run = call([*place.split("."), *_CALLS[place]])
        assert (run.returncode, run.stdout) == (2, ""), (place, setting, run.stderr)
        assert f"may not set {place}.{setting.partition(' ')[0]}" in run.stderr
        assert len(run.stderr.splitlines()) == 1
        assert not (repository / "evil.sh.ran").exists()
        assert (repository / "kept").read_text() == "kept\n"


def test_a_repository_s_settings_run_and_write_nothing(repository: Path, run_cli: RunCli) -> None:
    attacked(repository, lambda words: run_cli(*words, cwd=repository))


@pytest.mark.needs("root", "nobody")
def test_nor_for_an_ordinary_user(repository: Path) -> None:
    package = copy_package(repository.parent / "package")
    for path in (repository, *repository.iterdir()):
        os.chown(path, AS_NOBODY["user"], AS_NOBODY["group"])
    env = {"PYTHONPATH": str(package), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    program = [interpreter() or "", "-m", "nginx_tune"]

    def call(words: list[str]) -> CompletedProcess[str]:
        return subprocess.run(
            [*program, *words], capture_output=True, text=True, check=False, cwd=repository,
            timeout=60, stdin=subprocess.DEVNULL, env=env, **AS_NOBODY,
        )  # fmt: skip

    attacked(repository, call, each=5)


def test_the_same_file_is_believed_when_it_is_named(repository: Path, run_cli: RunCli) -> None:
    file = write(repository, '[recommend]\nnginx = "./evil.sh"\ntrust = true\n')
    run_cli("--config", file, "recommend", cwd=repository)
    assert "-V" in (repository / "evil.sh.ran").read_text()
