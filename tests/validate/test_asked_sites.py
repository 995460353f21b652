"""Which places of a site are asked, on a real nginx: those that answer who asks from outside."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.needs("root", "nginx", "probe", "ip")

Asked = Callable[..., dict[str, Any]]

OWN = "location / { root TOP/www; }"
V1 = "location /v1/ { proxy_pass http://127.0.0.1:9193; %s }"
DEFAULT = "server { listen 18195 default_server; server_name _; root TOP/other; }"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Two roots with files, and one of challenges without."""
    for name in ("www/a.html", "www/b.html", "other/c.html"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x" * 3000)
    (tmp_path / "acme/.well-known/acme-challenge").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def asked(run_cli: RunCli, top: Path) -> Asked:
    """What a validation of two bodies of one server would ask; or what keeps it from any."""

    def found(
        before: str,
        after: str = "",
        *,
        beside: str = "",
        name: str = "a.test",
        name_after: str = "",
    ) -> Any:
        for file, own, body in (
            ("old", name, before),
            ("new", name_after or name, after or before),
        ):
            text = (
                "user root; events {} http { access_log off; server { listen 18195; "
                f"server_name {own}; {body} }} {beside} }}"
            )
            (top / f"{file}.conf").write_text(text.replace("TOP", str(top)))
        run = run_cli("-q", "validate", "new.conf", "--against", "old.conf", "--dry-run", cwd=top)
        if run.returncode:
            assert run.returncode == 4
            return {"refused": run.stderr}
        assert run.stderr == ""
        return msgspec.toml.decode(run.stdout)

    return found


def notes(found: dict[str, Any], beginning: str) -> list[str]:
    return [one for one in found["found"] if one.startswith(beginning)]


def test_a_site_of_files_that_has_none_is_refused_by_what_is_missing(asked: Asked) -> None:
    said = asked("root TOP/acme;")["refused"]
    assert "/acme: no readable files to load" in said
    assert "(put the site's files there, or use --lab to make some)" in said


def test_a_server_named_by_a_pattern_is_asked_and_not_the_default_one(asked: Asked) -> None:
    pattern = r"~^[abc]\.x\.test$"
    gone = asked("root TOP/www;", "root TOP/www; return 503;", beside=DEFAULT, name=pattern)
    assert [one for one in gone["lost"] if "503 with the candidate" in one]
    same = asked("root TOP/www;", beside=DEFAULT, name=pattern)
    assert same.get("lost", []) == []
    assert notes(same, "also loaded: other (_: files, 200)")


def test_a_server_that_no_known_host_comes_to_is_not_asked(asked: Asked) -> None:
    pattern = "~^(?=x)y$"
    found = asked("root TOP/www;", beside=DEFAULT, name=pattern)
    (said,) = notes(found, f"not loaded: {pattern}")
    assert "another server would answer" in said
    assert notes(found, "also loaded") == []
    refusing = DEFAULT.replace("root TOP/other", "return 444")
    assert (
        "another server would answer"
        in asked("root TOP/www;", beside=refusing, name=pattern)["refused"]
    )


REFUSED = (
    "if ($arg_k = '') { return 403; } return 200 ok;",
    "limit_except POST { deny all; } return 200 ok;",
    "valid_referers a.test; if ($invalid_referer) { return 403; } return 200 ok;",
)
ANSWERED = ("return 200 ok;", "return 204;", "if ($arg_k) { return 403; } return 200 ok;")


def test_a_text_that_is_refused_to_who_asks_is_no_class(asked: Asked) -> None:
    texts = dict(enumerate((*REFUSED, *ANSWERED)))
    locations = " ".join(f"location = /e{number} {{ {text} }}" for number, text in texts.items())
    found = asked(f"root TOP/www; {locations}")
    refused = [f"a.test = /e{number}" for number in range(len(REFUSED))]
    (said,) = notes(found, "not loaded")
    assert said.startswith(f"not loaded: {', '.join(refused)}: answers 403 (it may come from deny")
    assert found.get("lost", []) == []


def test_a_text_that_the_candidate_refuses_is_lost(asked: Asked) -> None:
    text = "root TOP/www; location = /e { %s return 200 ok; }"
    found = asked(text % "", text % "if ($arg_k = '') { return 403; }")
    assert found["lost"] == ["a.test /e: 200 with the baseline, 403 with the candidate"]


LOCKED = "auth_basic x; auth_basic_user_file /dev/null;"
API = "location /api { proxy_pass http://127.0.0.1:9193; }"


@pytest.mark.parametrize(
    ("files", "answer"),
    [
        (f"location / {{ root TOP/www; {LOCKED} }}", "401 (it may come from auth_basic"),
        ("location / { root TOP/www; allow 192.0.2.1; deny all; }", "403 (it may come from deny"),
        ("location / { root TOP/www; } location ~ ^/.[.]html$ { return 302 /api; }", "302"),
    ],
)
def test_files_that_are_refused_to_who_asks_keep_nothing_else_from_being_compared(
    asked: Asked, files: str, answer: str
) -> None:
    """They are called by the name of the baseline's server."""
    found = asked(files + API, name_after="b.test a.test")
    assert found.get("refused") is None
    assert found["primary_metric"] == "a-test-api.mean"
    (said,) = notes(found, "not loaded: a.test /b.html")
    assert f"answers {answer}" in said
    assert found.get("lost", []) == []
    beside = asked(files + "location /open/ { alias TOP/other/; }")
    assert beside["primary_metric"].startswith("a-test-open")
    (said,) = notes(beside, "also loaded: ")
    assert "a-test-open (a.test /open/: files, 200)" in said


def test_a_site_that_refuses_all_of_its_files_is_refused_by_the_cause(asked: Asked) -> None:
    said = asked(f"root TOP/www; {LOCKED}")["refused"]
    assert "a.test /b.html and 1 more: answers 401 (it may come from auth_basic" in said


def test_files_that_the_candidate_alone_refuses_are_loaded(asked: Asked) -> None:
    """Of the baseline there is nothing to compare with where it refuses them."""
    found = asked("root TOP/www;", f"root TOP/www; {LOCKED}")
    assert found["primary_metric"] == "hot.requests_per_second"
    assert notes(found, "not loaded") == []
    assert "answers 401" in asked(f"root TOP/www; {LOCKED}", "root TOP/www;")["refused"]


def test_the_class_that_meets_the_change_decides(asked: Asked) -> None:
    found = asked(OWN + V1 % "", OWN + V1 % "proxy_buffering off;")
    assert found["primary_metric"] == "a-test-v1.mean"
    assert notes(found, "no class of the load") == []
    assert asked(OWN, OWN + "sendfile on;")["primary_metric"] == "hot.requests_per_second"


def test_a_load_that_does_not_meet_the_change_is_named(asked: Asked) -> None:
    hidden = OWN + "location /in/ { internal; root TOP/www; %s }"
    found = asked(hidden % "", hidden % "sendfile on;")
    assert notes(found, "no class of the load requests a place that the change touches")
    assert "memory" not in {one["name"] for one in found["load"]["classes"]}


def test_a_metric_of_what_is_not_loaded_decides_nothing(run_cli: RunCli, top: Path) -> None:
    text = "server { listen 18195; root TOP/www; location = /e { if ($arg_k = '') { return 403; }"
    conf = f"user root; events {{}} http {{ {text} return 200 ok; }} }} }}"
    for name in ("old", "new"):
        (top / f"{name}.conf").write_text(conf.replace("TOP", str(top)))
    run = run_cli(
        *("-q", "validate", "new.conf", "--against", "old.conf", "--dry-run"),
        *("--primary", "memory.mean"),
        cwd=top,
    )
    assert run.returncode == 4
    assert "class memory gets no load, so memory.mean cannot decide" in run.stderr


def test_rules_on_programs_take_the_probe_for_a_client_with_a_name(
    run_cli: RunCli, top: Path
) -> None:
    rule = "if ($http_user_agent ~* (curl|wget|^$)) { return 403; }"
    for name, sendfile in (("old", "off"), ("new", "on")):
        conf = (
            f"user root; events {{}} http {{ access_log off; server {{ listen 18195; {rule} "
            f"root {top}/www; sendfile {sendfile}; location = /e {{ return 200 ok; }} }} }}"
        )
        (top / f"{name}.conf").write_text(conf)
    run = run_cli(
        *("-q", "validate", "new.conf", "--against", "old.conf", "--no-store", "--pairs", "1"),
        *("--duration", "300ms", "--warmup", "100ms", "--accept-inconclusive", "-f", "console"),
        cwd=top,
    )
    assert run.returncode == 0, run.stderr
    assert "memory.mean" in run.stdout
    assert "not loaded" not in run.stdout
    (top / "new.conf").write_text((top / "new.conf").read_text().replace("curl", "probe"))
    (top / "old.conf").write_text((top / "old.conf").read_text().replace("curl", "probe"))
    run = run_cli(
        *("-q", "validate", "new.conf", "--against", "old.conf", "--no-store", "--pairs", "1"),
        *("--duration", "300ms", "--warmup", "100ms"),
        cwd=top,
    )
    assert run.returncode == 4
    assert "answers 403" in run.stderr
    assert "a rule on headers or addresses" in run.stderr


def test_a_pattern_is_loaded_by_the_files_that_it_takes(asked: Asked, top: Path) -> None:
    (top / "other/film.mp4").write_bytes(b"x" * 5000)
    body = "root TOP/www; %s location ~ \\.mp4$ { root TOP/other; }"
    found = asked(body % "location ~ \\.xyz$ { root TOP/acme; }")
    assert notes(found, "also loaded: a-test-mp4 (a.test ~ \\.mp4$: files, 200)")
    (said,) = notes(found, "not loaded: a.test ~ \\.xyz$: ")
    assert said.endswith("/acme has no files that its pattern takes")
    (said,) = notes(asked(body % "location ~ \\.xyz$ { return 404; }"), "not loaded: a.test ~")
    assert "made for its pattern" in said
    assert notes(found, "hot requests always /")
