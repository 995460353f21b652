"""Servers, names and files that only the baseline has, on a real nginx: asked before any load."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import RunCli

pytestmark = pytest.mark.needs("root", "nginx", "probe", "ip")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A site with a directory below it, and another site."""
    for name, size in (
        ("site/index.html", 30), ("site/f", 5000), ("site/downloads/d.zip", 700),
        ("site/.git/config", 9), ("other/g", 900),
    ):  # fmt: skip
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_bytes(b"x" * size)
    return tmp_path / "site"


Look = Callable[..., dict[str, Any]]


@pytest.fixture
def look(run_cli: RunCli, root: Path) -> Look:
    """What is found of two bodies of the server a.test, and of servers beside it."""

    def found(
        before: str, after: str, beside: str = "", beside_after: str | None = None
    ) -> dict[str, Any]:
        for name, body, more in (
            ("old", before, beside),
            ("new", after, beside if beside_after is None else beside_after),
        ):
            text = (
                "user root; events {} http { access_log off; server { listen 127.0.0.1:18191; "
                f"server_name a.test; root {root}; {body} }} {more} }}"
            )
            places = text.replace("OTHER", str(root.parent / "other"))
            (root.parent / f"{name}.conf").write_text(places)
        run = run_cli(
            "-q", "validate", "new.conf", "--against", "old.conf", "--dry-run", cwd=root.parent
        )
        assert (run.returncode, run.stderr) == (0, "")
        return msgspec.toml.decode(run.stdout)

    return found


D = "a.test /downloads/"
DOWNLOADS = "location /downloads/ { %s }"
X = "location /x/ { %s }"
API = "location /api/ { proxy_pass http://127.0.0.1:9191; }"
B = "server { listen 127.0.0.1:18191; server_name %s; %s }"
PASSED = "location / { proxy_pass http://127.0.0.1:9192; }"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (DOWNLOADS % "", DOWNLOADS % "return 503;", f"{D}: 200 with the baseline, 503"),
        ("", DOWNLOADS % "return 503;", f"{D}: 200 with the baseline, 503"),
        (DOWNLOADS % "", DOWNLOADS % "deny all;", f"{D}: 200 with the baseline, 403"),
        ("", r"location ~ \.zip$ { deny all; }", r"a.test ~ \.zip$: 200 with the baseline, 403"),
        (DOWNLOADS % "expires 1h;", DOWNLOADS % "return 200 ok;", f"{D}: a file with"),
        (X % "alias OTHER/;", X % "return 403;", "a.test /x/: 200 with the baseline, 403"),
        (X % "alias OTHER/;", X % "return 200 ok;", "a.test /x/: a file with the baseline"),
        (X % "alias OTHER/;", "", "a.test /x/: 200 with the baseline, 404"),
        (X % "alias OTHER/;", "try_files $uri /index.html;",
         "a.test /x/: a file with the baseline, a fallback with the candidate"),
        (API, "location /api/ { return 200 ok; }", "a.test /api/: passed on with the baseline"),
        (API, "try_files $uri /index.html;", "a.test /api/: passed on with the baseline, a file"),
        (API.replace("/api/", "/api"), API.replace("/api/", "= /api"),
         "a.test /api (/api/nginx-tune): 200 with the baseline, 404 with the candidate"),
        (PASSED, PASSED.replace("/ {", "= / {") + "location / { return 503; }",
         "a.test / (/nginx-tune): 200 with the baseline, 503 with the candidate"),
        (PASSED, PASSED + "location = /old { return 410; }", "a.test = /old: 200 with the"),
    ],
)  # fmt: skip
def test_what_the_candidate_answers_otherwise_is_lost(
    look: Look, before: str, after: str, said: str
) -> None:
    lost = look(before, after).get("lost", [])
    assert [one[: len(said)] for one in lost] == [said]


AS_BEFORE = [
    (DOWNLOADS % "", ""),
    (DOWNLOADS % "return 503;", DOWNLOADS % "deny all;"),
    (X % "alias OTHER/;", "location ^~ /x/ { alias OTHER/; sendfile on; }"),
    ("", "try_files $uri /index.html;"),
    # News of the candidate, in front of an application of which nothing is known.
    (PASSED, PASSED + "location = /healthz { return 200 ok; }"),
    ("", r"location ~ /\.git { deny all; }"),
    (X % "alias OTHER/; try_files $uri /index.html;", X % "alias OTHER/; try_files $uri =404;"),
    (API, API + X % "return 403;"),
    (API.replace("/api/", "/api"), API + "location = /api { return 301 /api/; }"),
    (PASSED, PASSED.replace("/ {", "= / {") + PASSED.replace("9192", "9193")),
]


@pytest.mark.parametrize(("before", "after"), AS_BEFORE)
def test_what_is_answered_as_before_is_not_lost(look: Look, before: str, after: str) -> None:
    assert look(before, after).get("lost", []) == []


def test_a_server_that_is_gone_is_lost_and_another_is_not_asked_for_it(look: Look) -> None:
    found = look(API, API, B % ("b.test", PASSED), "")
    assert found["lost"] == [
        "127.0.0.1:18191, b.test: no server has this name any more, and that of a.test answers"
    ]
    assert not [one for one in found["found"] if "b-test" in one]
    found = look("", "", B % ("b.test c.test", "root OTHER;"), B % ("c.test", "root OTHER;"))
    assert found["lost"] == [
        "127.0.0.1:18191, b.test: no server has this name any more, and that of a.test answers"
    ]
    assert [one for one in found["found"] if "b-test (b.test: files, 200)" in one]
    # Named still, by a server that has none of its files.
    found = look("", "server_name c.test;", B % ("c.test", "root OTHER;"), "")
    assert found["lost"] == ["c.test: 200 with the baseline, 404 with the candidate (/g)"]


@pytest.mark.parametrize(
    "after", [B % ("*.test", "root OTHER;"), B % ("c.test b.test", "root OTHER;")]
)
def test_a_server_of_another_name_that_answers_the_same_is_no_loss(look: Look, after: str) -> None:
    found = look("", "", B % ("b.test", "root OTHER;"), after)
    assert found.get("lost", []) == []
    assert [one for one in found["found"] if "b-test (b.test: files, 200)" in one]


def test_files_that_one_variant_has_another_server_for_are_not_compared(look: Look) -> None:
    passed = "proxy_pass http://127.0.0.1:9191;"
    for before, after in ((X % "alias OTHER/;", X % passed), (DOWNLOADS % "", DOWNLOADS % passed)):
        found = look(before, after)
        assert found.get("lost", []) == []
        said = [one for one in found["found"] if one.startswith("not loaded")]
        assert [one for one in said if "the baseline, passed on with the candidate" in one]


def test_a_place_without_files_is_called_what_it_is(look: Look) -> None:
    gone = "location /x/ { alias OTHER/none/; error_page 404 =200 /index.html; }"
    (said,) = [one for one in look(gone, gone)["found"] if "a-test-x" in one]
    assert "a.test /x/: /x/, as " in said
    assert "has no files to request, 200" in said
    full = gone.replace("none/", "")
    (said,) = [one for one in look(full, full)["found"] if "a-test-x" in one]
    assert "a.test /x/: files, 200" in said


def test_an_error_log_that_is_a_device_hides_lines_and_stops_nothing(
    run_cli: RunCli, root: Path
) -> None:
    for name in ("old", "new"):
        (root.parent / f"{name}.conf").write_text(
            "user root; error_log /dev/null; events {} http { server { listen 18191; "
            f"root {root}; }} }}"
        )
    run = run_cli(
        *("validate", "new.conf", "--against", "old.conf", "--no-store", "--pairs", "1"),
        *("--duration", "500ms", "--warmup", "100ms", "--require", "server.pool_overflow == 0"),
        *("--accept-inconclusive", "-f", "console"),
        cwd=root.parent,
    )
    assert run.returncode == 1, run.stderr
    assert "error_log /dev/null is a device, which keeps nothing" in run.stdout
    assert "FAIL" in run.stdout, "a gate on what was not measured fails"
