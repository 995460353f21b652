"""What is not seen is absent only where all around it was read; --map says where files are."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from conf_files import Files
from recorded_hosts import facts_file
from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.hit import WHOLE_TREE
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.include_patterns import MOST_DIRECTORIES
from nginx_tune.conf.tree import read_tree
from nginx_tune.documents.facts import Instance, Nginx, Running
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx import binary
from nginx_tune.nginx.elsewhere import FilesElsewhere, NotHereError, with_own_directory
from nginx_tune.report.findings import render_findings

Run = Callable[..., "CompletedProcess[str]"]

HOST = linux(version="1.22.1", flags=("--with-http_gzip_static_module",))
BARE = {
    "up-keepalive-missing": (
        "upstream u { server 10.0.0.1; %s } server { location / { proxy_pass http://u; } }"
    ),
    "up-keepalive-http10": (
        "upstream u { server 10.0.0.1; keepalive 9; } server { location / { proxy_pass http://u; "
        "%s } }"
    ),
    "ca-stampede": (
        "proxy_cache_path /c keys_zone=c:1m max_size=1g; "
        "server { location / { proxy_pass http://10.0.0.1; proxy_cache c; %s } }"
    ),
    "gz-dynamic-static-files": (
        "server { root /srv; location / { gzip on; gzip_types text/css; %s } }"
    ),
    "ca-bg-update-inert": (
        "proxy_cache_path /c keys_zone=c:1m max_size=1g; server { location / { proxy_cache c; "
        "proxy_pass http://10.0.0.1; proxy_cache_background_update on; %s } }"
    ),
}


def _fires(rule: str, text: str) -> tuple[bool, bool]:
    """Whether a rule fires, and whether it names what was not read instead."""
    files = Files({"nginx.conf": f"events {{}} http {{ {text} }}".encode()})
    (one,) = (known for known in ALL if known.id == rule)
    found = audit(read_tree("nginx.conf", files), HOST, [one])
    unread = [one.unread for one in found.needs_facts if WHOLE_TREE in one.facts]
    assert unread in ([], [["lost.conf"]])
    shown = render_findings(found)
    assert (f"because lost.conf was not read: {rule}" in shown) is bool(unread)
    return bool(found.findings), bool(unread)


@each_row("rule", BARE)
def test_a_rule_is_silent_where_an_include_around_its_place_was_not_read(rule: str) -> None:
    conf = BARE[rule]
    assert _fires(rule, conf % "") == (True, False)
    assert _fires(rule, conf % "include lost.conf;") == (False, True), "in the block itself"
    matters_around = rule != "up-keepalive-missing"  # an upstream takes nothing from http
    assert _fires(rule, "include lost.conf;" + conf % "") == (
        (False, True) if matters_around else (True, False)
    ), "around it"
    beside = "server { server_name b; include lost.conf; }"
    assert _fires(rule, conf % "" + beside) == (True, False), "beside it"
    assert _fires(rule, "include mime.types;" + conf % "") == (True, False), "nginx's own file"


def test_every_default_is_an_absence() -> None:
    conf = "events {} http { server { location / { root /srv; sendfile on; %s } } }"
    (rule,) = (one for one in ALL if one.id == "io-chunk-unlimited")
    for inner, count in (("", 1), ("include lost;", 0)):
        tree = read_tree("c", Files({"c": (conf % inner).encode()}))
        assert len(audit(tree, linux(version="1.18.0"), [rule]).findings) == count


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "nginx" / "conf.d"
    folder.mkdir(parents=True)
    (folder.parent / "nginx.conf").write_text(
        "events {}\nhttp {\n include /etc/nt/mime.types;\n include /etc/nt/gone.conf;\n"
        " include /etc/nt/conf.d/*.conf;\n}\n"
    )
    (folder / "site.conf").write_text("server { listen 80; sendfile yes; }\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_map_says_where_files_are_and_what_is_not_here_is_said(
    run_cli: Run, checkout: Path
) -> None:
    plain = run_cli("audit", "nginx/nginx.conf")
    assert plain.returncode == 4
    assert "  --map /etc/nt=nginx reads them here\n" in plain.stdout
    run = run_cli("audit", "nginx/nginx.conf", "--map", "/etc/nt=nginx")
    assert run.returncode == 4
    assert "nginx/conf.d/site.conf:1: error[cf-value-invalid]" in run.stdout
    assert (
        "so not read: nginx/nginx.conf:4: include nginx/gone.conf\n  --accept-missing" in run.stdout
    )
    assert (
        "nginx's own file, not needed: nginx/nginx.conf:3: include nginx/mime.types" in run.stdout
    )
    accepted = ("--accept-missing", "/etc/nt/gone*")
    taken = run_cli("audit", "nginx/nginx.conf", "--map", "/etc/nt=nginx", *accepted)
    assert taken.returncode == 1
    said = (
        "not found here, accepted by --accept-missing: nginx/nginx.conf:4: include nginx/gone.conf"
    )
    assert f"\n{said}\n" in taken.stdout
    looked = run_cli("check", "nginx/nginx.conf", "--map", "/etc/nt=nginx", *accepted)
    assert f"nginx-tune: {said}\n" in looked.stderr
    document = json.loads(run_cli("audit", "nginx/nginx.conf", "--map", "/etc/nt/=nginx/",
                                  "-f", "json").stdout)  # fmt: skip
    assert document["files_unparsed"] == []
    assert [(one["line"], one["path"], one["accepted"]) for one in document["files_missing"]] == [
        (3, "/etc/nt/mime.types", "it comes with nginx"), (4, "/etc/nt/gone.conf", "")
    ]  # fmt: skip
    (checkout / "nginx/conf.d/site.conf").write_text("server { listen 80; }}\n")
    broken = run_cli("audit", "nginx/nginx.conf", "--map", "/etc/nt=nginx")
    assert broken.returncode == 3, "what is here and cannot be parsed is a fault all the same"


class Deep:
    """A file system in which every directory holds others without end."""

    def __init__(self) -> None:
        self.listed = 0

    def read_bytes(self, path: str) -> bytes:
        return b"events {} http { include /*/*/*/*/*/*; }"

    def list_dir(self, path: str) -> list[str]:
        self.listed += 1
        return [str(number) for number in range(50)]


def test_a_pattern_that_looks_through_the_file_system_is_given_up() -> None:
    deep = Deep()
    tree = read_tree("/c", deep)
    assert "matches too many" in tree.unparsed[0].reason
    assert deep.listed <= MOST_DIRECTORIES + 1
    assert not tree.is_whole


SITE = "server { listen 80; location / { proxy_pass http://127.0.0.1:1; } }"
KINDS: dict[str, tuple[str, tuple[str, ...], int, list[str]]] = {
    "in main": ("include /etc/nt/m*.conf; events {}", (), 4, ["/etc/nt/m*.conf"]),
    "in events": ("events { include /etc/nt/e/*; }", (), 4, ["/etc/nt/e/*"]),
    "in http": ("events {} http { include /etc/nt/h/*; }", (), 4, ["/etc/nt/h/*"]),
    "in a server": ("events {} http { server { include /etc/nt/s/*; } }", (), 4, ["/etc/nt/s/*"]),
    "in stream": ("events {} stream { include /etc/nt/t/*; }", (), 4, ["/etc/nt/t/*"]),
    "below the main file": ("events {} http { include gone.d/*.conf; }", (), 4, ["gone.d/*.conf"]),
    "one file below the main file": ("events {} http { include gone; }", (), 4, ["gone"]),
    "a name that nginx does not fill in": ("events {} http { include $x.conf; }", (), 4,
                                           ["$x.conf"]),
    "in a file that was read": ("events {} http { include nested; }", (), 4, ["/etc/nt/in/*.conf"]),
    "what another one matches": ("events {} http { include sites/*.conf; }", (), 0, []),
    "a class of letters": ("events {} http { include sites/[[:alpha:]].con[!0-9]; }", (), 0, []),
    "a class that matches none": (
        "events {} http { include sites/[[:digit:]]*; }", (), 4, ["sites/[[:digit:]]*"],
    ),
    "a file in the one directory that matches": (
        "events {} http { include si*/a.conf; include si*/gone.conf; }", (), 4, ["si*/gone.conf"],
    ),
    "a directory": ("events {} http { include sites; }", (), 3, []),
    "a directory that is not here": ("events {} http { include /etc/nt/d/; }", (), 4,
                                     ["/etc/nt/d/"]),
    "of the longest prefix": (
        "events {} http { include /etc/nt/deep/*.conf; include /etc//nt/./a.conf; }",
        ("--map", "/etc/nt=.", "--map", "/etc/nt/deep=sites"), 4, ["/etc//nt/./a.conf"],
    ),
    "outside of the prefix": (
        "events {} http { include /etc/ntx/sites/*.conf; }", ("--map", "/etc/nt=."), 4,
        ["/etc/ntx/sites/*.conf"],
    ),
    "a link of the host": (
        "events {} http { include enabled/*; }", (), 4, ["/etc/nt/sites/a.conf"],
    ),
    "a link of the host by the map": (
        "events {} http { include enabled/*; }", ("--map", "/etc/nt=."), 0, [],
    ),
    "taken by the words of the include": (
        "events {} http { include gone.d/*.conf; include gone; }",
        ("--accept-missing", "gone.d/*.conf", "--accept-missing", "g?ne"), 0, [],
    ),
    "nginx's own": (
        "events {} http { include mime.types; include /etc/nt/fastcgi_params; }", (), 0, [],
    ),
}  # fmt: skip
"""A tree, options, the exit status and what was not read."""
FACTS = facts_file("raid10-4hdd")
COMMANDS = (
    ("audit", "nginx.conf", "--facts", "none"),
    ("plan", "nginx.conf", "--facts", FACTS, "--only", "accept"),
    ("recommend", "-c", "nginx.conf", "--facts", FACTS),
)


@each_row("kind", KINDS)
def test_absent_is_never_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Run, kind: str
) -> None:
    conf, options, status, unread = KINDS[kind]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites/a.conf").write_text(SITE)
    (tmp_path / "nested").write_text("include /etc/nt/in/*.conf;")
    (tmp_path / "enabled").mkdir()
    (tmp_path / "enabled/a").symlink_to("/etc/nt/sites/a.conf")
    (tmp_path / "nginx.conf").write_text(conf)
    for command in COMMANDS:
        run = run_cli(*command, *options, "-f", "json")
        assert run.returncode == status, (command, run.stdout + run.stderr)
        missing = json.loads(run.stdout)["files_missing"] if run.stdout else []
        assert [one["path"] for one in missing if not one["accepted"]] == unread, command
    looked = run_cli("check", "nginx.conf", "--facts", FACTS, *options)
    assert looked.returncode == status, looked.stdout
    said = "not found here, so not read: "
    for told in (run, looked) if unread else ():
        assert said in told.stderr
        accept = f"--accept-missing {shlex.quote(unread[0])} accepts that it is absent)"
        assert accept in told.stderr or " reads it here)" in told.stderr


def test_a_checkout_is_never_completed_by_files_of_this_machine(
    tmp_path: Path, run_cli: Run
) -> None:
    machine, checkout = tmp_path / "machine", tmp_path / "checkout"
    for folder in (machine, checkout):
        folder.mkdir()
    (machine / "a.conf").write_text("server { listen 80; sendfile yes; }")
    (checkout / "link.conf").symlink_to(machine / "a.conf")
    (checkout / "relative").symlink_to("../machine")
    conf = checkout / "nginx.conf"
    lines = (
        f"include {machine}/a.conf; include {machine}/*.conf; include {checkout}/*k.conf;"
        "include ../machine/a.conf; include relative/a.conf;"
    )
    conf.write_text(f"events {{}} http {{ {lines} }}")
    run = run_cli("audit", conf, "--facts", "none", "-f", "json")
    assert run.returncode == 4
    document = json.loads(run.stdout)
    assert document["files_parsed"] == [str(conf)]
    assert [one["path"] for one in document["files_missing"]] == [
        f"{machine}/a.conf", f"{machine}/*.conf", *[f"{machine}/a.conf"] * 3
    ]  # fmt: skip
    meant = run_cli("audit", conf, "--facts", "none", "--map", "/=/")
    assert meant.returncode == 1, "--map says that they are meant"
    (machine.parent / ".git").mkdir()
    within = run_cli("audit", conf, "--facts", "none", "-f", "json")
    assert f"{checkout}/../machine/a.conf" in json.loads(within.stdout)["files_parsed"]


def test_a_file_in_the_root_directory_is_its_own_tree() -> None:
    """A container has a mounted configuration there."""
    reader = FilesElsewhere(LiveHost(), with_own_directory("/nginx.conf", ()))
    assert reader.followed("/nginx.conf") == "/nginx.conf"
    for other in ("/etc/passwd", "/token"):
        with pytest.raises(NotHereError):
            reader.followed(other)


def test_on_its_own_host_a_pattern_without_a_match_is_what_nginx_reads(
    tmp_path: Path, run_cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "etc/nginx.conf", tmp_path / "nginx.conf"
    own.parent.mkdir()
    for conf in (own, own.with_name("new.conf"), other):
        conf.write_text(f"events {{}} http {{ include {tmp_path}/none/*.conf; include n/*; }}")
    for nginx in (
        Nginx(conf_path=str(own)),
        Nginx(running=Running(pid=9, conf_path=str(own))),
        Nginx(conf_path="/none", instances=[Instance(pid=9, conf_path=str(own))]),
    ):
        monkeypatch.setattr(binary, "read_nginx", lambda *_, nginx=nginx, **__: (nginx, []))
        assert run_cli("audit", own, "--facts", "none").returncode == 0
        assert run_cli("audit", other, "--facts", "none").returncode == 4
        is_beside = nginx.conf_path == str(own)
        beside = run_cli("audit", own.with_name("new.conf"), "--facts", "none")
        assert beside.returncode == (0 if is_beside else 4)
    own.write_text("events {} http { include none.conf; }")
    assert run_cli("audit", own, "--facts", "none").returncode == 3, "nginx does not start"


def test_a_map_is_proposed_from_the_tree(
    tmp_path: Path, run_cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("root/etc/nginx/conf.d/a.conf", "root/usr/share/nt/b.conf", "deploy/c/d.conf"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SITE)
    monkeypatch.chdir(tmp_path)
    conf = Path("root/etc/nginx/nginx.conf")
    for names, likely in {
        ("/etc/nginx/conf.d/*.conf",): ["/etc/nginx=root/etc/nginx"],
        ("/etc/nginx/conf.d/*.conf", "/usr/share/nt/b.conf"): ["/=root"],
        ("/etc/nginx/conf.d/*.conf", "/opt/c/d.conf"): [
            "/etc/nginx=root/etc/nginx", "/opt=deploy"
        ],
        ("/opt/none/*.conf", "none/*"): [],
        ("/opt/conf.d/*.conf", "/opt/c/d.conf"): ["/opt=root/etc/nginx", "/opt/c=deploy/c"],
    }.items():  # fmt: skip
        lines = " ".join(f"include {name};" for name in names)
        conf.write_text(f"events {{}} http {{ {lines} }}")
        run = run_cli("audit", conf, "--facts", "none", "-f", "json")
        assert json.loads(run.stdout)["likely_maps"] == likely, names


@each_row("own", ["a/etc/nginx", "c"])
def test_no_map_leads_into_another_tree(
    tmp_path: Path, run_cli: Run, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    """A branch with a main file of its own is another tree; what is in none may be of any."""
    monkeypatch.chdir(tmp_path)
    includes = "include /etc/nginx/conf.d/*; include /etc/ssl/s.conf; include /opt/sites/*;"
    for name in ("a/etc/nginx", "b/etc/nginx", "c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "nginx.conf").write_text(f"events {{}} http {{ {includes} }}")
    for name in ("b/etc/nginx/conf.d/x", "b/etc/ssl/s.conf", "shared/sites/x"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(SITE)
    run = run_cli("audit", f"{own}/nginx.conf", "--facts", "none", "-f", "json")
    assert json.loads(run.stdout)["likely_maps"] == ["/opt=shared"]


LOST = {
    "nginx/snippets/typo.conf": "nginx/snippets/typo.conf",
    "include relative-typo;": "nginx/relative-typo",
    "../sites/gone": "nginx/enabled/a: a link to nginx/sites/gone",
    "/etc/nt/sites/gone": "nginx/enabled/a: a link to nginx/sites/gone",
    "/opt/gone": "nginx/enabled/a: a link to /opt/gone",
}
"""An include of an absolute or a relative name, or a link's target; and the words on it."""


@each_row("lost", LOST)
def test_no_map_is_proposed_that_would_not_find_the_file(
    tmp_path: Path, run_cli: Run, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("nginx/sites", "nginx/enabled", "nginx/snippets"):
        (tmp_path / name).mkdir(parents=True)
    line = "include /etc/nt/enabled/*;"
    if lost.startswith(("nginx/", "include ")):
        line = lost if lost.startswith("i") else f"include {lost.replace('nginx', '/etc/nt')};"
    else:
        (tmp_path / "nginx/enabled/a").symlink_to(lost)
    (tmp_path / "nginx/nginx.conf").write_text(f"events {{}}\nhttp {{ {line} }}")
    run = run_cli("audit", "nginx/nginx.conf", "--map", "/etc/nt=nginx")
    said = f"not found here, so not read: nginx/nginx.conf:2: include {LOST[lost]}\n"
    told = re.escape(said) + r"  (--accept-missing .*) accepts that it is absent\n"
    hint = re.search(told, run.stdout)
    assert hint, run.stdout
    options = ("--map", "/etc/nt=nginx", *shlex.split(hint[1]))
    assert run_cli("audit", "nginx/nginx.conf", *options).returncode == 0


def test_a_file_that_is_included_names_its_main_file(tmp_path: Path, run_cli: Run) -> None:
    for name, text in {
        "nginx/nginx.conf": "events {} http { include /etc/nt/sites/*; }",
        "nginx/sites/a.conf": "server { include fastcgi_params; }",
        "nginx/other/b.conf": "server { include fastcgi_params; }",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name, is_included in (("sites/a.conf", True), ("other/b.conf", False)):
        run = run_cli("audit", f"nginx/{name}", cwd=tmp_path)
        assert run.stdout.startswith(f"nginx's own file, not needed: nginx/{name}:1: include ")
        again = "nginx-tune audit nginx/nginx.conf --map /etc/nt=nginx\n"
        assert run.stderr.endswith(again) is is_included, run.stderr


@pytest.mark.needs("nginx", "userns")
def test_nginx_judges_the_files_that_the_map_names(
    tmp_path: Path, run_cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sites", "enabled", "c d"):
        (tmp_path / name).mkdir()
    (tmp_path / "enabled/shop").symlink_to("/etc/nt/sites/shop")
    (tmp_path / "nginx.conf").write_text(
        "events {}\nhttp {\n include mime.types;\n include /etc/nt/gone/*.conf;\n"
        " include '/etc/nt/c d/*';\n include\n /etc/nt/enabled/*;\n}\n"
    )
    options = ("--facts", "none", "--map", "/etc/nt=.", "--accept-missing", "*gone*", "--test")
    for sites, inside, told in (
        ("server { location ~ (? { } }", "", "sites/shop:1"),
        ("server { }", "location ~ (? { }", "c d/shop:1"),
        ("server { }", "resolver_timeout 3s;", ""),
    ):
        (tmp_path / "sites/shop").write_text(sites)
        (tmp_path / "c d/shop").write_text(f"server {{ {inside} }}")
        run = run_cli("audit", "nginx.conf", *options)
        assert run.returncode == (3 if told else 0), run.stdout
        assert (f"{tmp_path}/{told}" if told else "nginx -t accepts it") in run.stdout
    unread = run_cli("audit", "nginx.conf", *options[:-3], "--test")
    assert unread.returncode == 4
    assert "nginx -t was not run" in unread.stderr


LINKS = {"../sites/a.conf": True, "/etc/nt/sites/a.conf\n": True, "sites/a.conf\r\n": True,
         "../sites/a.conf;": False, "root /srv": False, "a.conf": False}  # fmt: skip
"""The text of a file, and whether it is a link that git without core.symlinks stored."""


@each_row("text", LINKS)
def test_a_link_that_was_stored_as_text_is_named(tmp_path: Path, run_cli: Run, text: str) -> None:
    (conf := tmp_path / "nginx.conf").write_text("events {} http { include a; }")
    (tmp_path / "a").write_text(text)
    run = run_cli("audit", conf, "--facts", "none")
    assert run.returncode in ({3} if LINKS[text] else {1, 3})
    said = f"{tmp_path}/a:1: not parsed: a link to {text.strip()} that was stored as text"
    assert (said in run.stdout) is LINKS[text], run.stdout


@each_row(
    ("form", "name"),
    [
        *((form, "enabled") for form in ("console", "markdown", "junit")),
        *((form, "sites") for form in ("github", "gitlab", "sarif", "checkstyle")),
    ],
)
def test_people_read_the_name_in_the_configuration_and_a_forge_that_in_the_repository(
    tmp_path: Path, run_cli: Run, form: str, name: str
) -> None:
    for place in ("sites", "enabled"):
        (tmp_path / place).mkdir()
    (tmp_path / "sites/shop").write_text("sendfile yes;")
    (tmp_path / "enabled/shop").symlink_to("../sites/shop")
    (tmp_path / "nginx.conf").write_text("events {} http { include enabled/*; }")
    run = run_cli("audit", "nginx.conf", "--facts", "none", "-f", form, cwd=tmp_path)
    assert f"{name}/shop" in run.stdout
    assert name != "enabled" or "sites/shop" not in run.stdout


@each_row("form", ["console", "json", "sarif", "markdown", "junit", "checkstyle", "github",
                   "gitlab", "prometheus"])  # fmt: skip
def test_each_form_says_what_was_not_read(tmp_path: Path, run_cli: Run, form: str) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text("events {} http { include /etc/nt/x/*; include /etc/nt/y/*; }")
    run = run_cli("audit", conf, "--facts", "none", "--accept-missing", "*/y/*", "-f", form)
    assert run.returncode == 4
    if form == "prometheus":
        assert "nginx_tune_audit_includes_unread 1" in run.stdout
        return
    assert "/etc/nt/x/" in run.stdout
    assert "/etc/nt/y/" in run.stdout
    faults = {
        "sarif": '"executionSuccessful": false', "junit": "<error ", "checkstyle": '"error"',
        "github": "::error ", "gitlab": '"blocker"',
    }  # fmt: skip
    assert form not in faults or run.stdout.count(faults[form]) == 1
    assert "include" not in run.stderr
    options = ("--facts", "none", "--accept-missing", "*/y/*", "-f", f"{form}={tmp_path}/report")
    run = run_cli("audit", conf, *options)
    assert (run.returncode, run.stdout) == (4, "")
    assert (
        f"so not read: {conf}:1: include /etc/nt/x/* (--accept-missing '/etc/nt/x/*' " in run.stderr
    )
    assert f"accepted by --accept-missing: {conf}:1: include /etc/nt/y/*\n" in run.stderr
    assert (
        f"nginx-tune: no findings in 1 file, 1 include not read (see {tmp_path}/report)\n"
        in run.stderr
    )
