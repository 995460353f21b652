from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from goldens import BASE, FOLDER, render
from real_nginx import check

RENDERED = render()


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.conf")} == set(RENDERED)


@pytest.mark.parametrize("name", RENDERED)
def test_the_emitter_writes_the_golden_bytes(name: str) -> None:
    """A wanted difference: ``python tests/emit/goldens.py``, then review it."""
    assert (FOLDER / f"{name}.conf").read_text(encoding="utf-8") == RENDERED[name]


@pytest.mark.needs("nginx", "root")
@pytest.mark.parametrize("name", [name for name in RENDERED if not name.startswith("freebsd")])
def test_the_real_nginx_accepts_it(name: str, tmp_path: Path) -> None:
    for folder in ("1", "2", "3"):
        (tmp_path / folder).mkdir()
    if "tls" in name:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-subj", "/CN=www.example.com", "-days", "2",
             "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
            check=True, capture_output=True,
        )  # fmt: skip
    (tmp_path / "mime.types").write_text("types { text/html html; }\n")
    conf = tmp_path / "nginx.conf"
    text = RENDERED[name].replace(BASE, str(tmp_path))
    conf.write_text(f"pid {tmp_path}/pid;\n{text}", encoding="utf-8")
    run = check(str(conf))
    assert run.returncode == 0, run.stderr
    assert "[warn]" not in run.stderr, run.stderr


@pytest.mark.parametrize("name", RENDERED)
def test_every_tuned_line_says_why(name: str) -> None:
    lines = RENDERED[name].splitlines()
    tuned = re.compile(
        r"\s*(thread_pool|aio|aio_write|worker_\w+|sendfile\w*|tcp_nopush|open_file_cache\w*|"
        r"proxy_cache_path|proxy_cache |keepalive|split_clients|output_buffers|listen .*backlog)"
    )
    if name == "static-plain":
        return
    for before, line in zip(["", *lines], lines, strict=False):
        if tuned.match(line):
            assert "  # " in line or before.lstrip().startswith("#"), line


def test_comments_are_aligned() -> None:
    lines = [line for line in RENDERED["media-lab"].splitlines() if line.startswith("worker_")]
    assert len({line.index("#") for line in lines}) == 1


def test_what_was_left_alone_is_said() -> None:
    head = RENDERED["static-fits"].split("events {", maxsplit=1)[0]
    assert "# Left as nginx has it, on purpose:" in head
    assert "aio threads: Leave them off: dataset fits in the page cache" in head


def test_no_template_holds_a_number_to_tune() -> None:
    """Digits in a skeleton: HTTP's 200, the local address, and names of types."""
    templates = Path(__file__).resolve().parents[2] / "templates"
    for path in templates.glob("*.conf.j2"):
        if path.name == "types.conf.j2":
            continue
        text = re.sub(r"\.conf\.j2|return 200|127\.0\.0\.1", "", path.read_text())
        assert not re.search(r"\d", text), path.name
