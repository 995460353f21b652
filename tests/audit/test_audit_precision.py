"""``tools/audit-precision`` on a repository of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "audit-precision"


def _git(directory: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(
        command, cwd=directory, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.long
def test_findings_are_drawn_by_seed_with_links_to_their_lines(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "nginx" / "conf.d").mkdir(parents=True)
    (source / "nginx/nginx.conf").write_text(
        "events {}\nhttp {\n include /etc/nginx/conf.d/*.conf;\n include /etc/nginx/gone;\n}\n"
    )
    (source / "nginx/conf.d/a.conf").write_text("server { listen 80; sendfile yes; }\n")
    (source / "site.conf").write_text("server { listen 80; location /x?y { return 204; } }\n")
    (source / "saved.conf").write_text(
        "# configuration file /etc/nginx/nginx.conf:\nevents {}\nhttp { include a; }\n"
        "# configuration file /etc/nginx/a:\nserver { listen 80; sendfile yes; }\n"
    )
    (source / "notes.txt").write_text("server\n")
    (source / "app.conf").write_text("[server]\nlocation = x\n")
    _git(source, "init", "-q")
    _git(source, "add", "-A")
    _git(source, "commit", "-qm", "all")
    commit = _git(source, "rev-parse", "HEAD")
    _git(source, "config", "uploadpack.allowAnySHA1InWant", "true")
    listed = tmp_path / "commits"
    listed.write_text(f"# of this test\nfile://{source} {commit}\n")

    def run(*options: str) -> str:
        command = [sys.executable, str(TOOL), str(listed), str(tmp_path / "work"), *options]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    said = run()
    assert f"/blob/{commit}/nginx/conf.d/a.conf#L1)" in said
    assert "| cf-value-invalid | error | [nginx/conf.d/a.conf:1]" in said
    assert "- cn-location-unreachable: 1" in said
    assert "1 repositories, 2 configurations" in said
    assert run("--draw", "1", "--seed", "4") == run("--draw", "1", "--seed", "4")
    assert run("--draw", "1").count("/blob/") == 1
    facts = str(TOOL.parents[1] / "tests/host/golden/sata-ssd.facts.json")
    with_host = run("--facts", facts)
    assert "/conf.d/a.conf:1]" in with_host
    rows = [line for line in with_host.splitlines() if "/blob/" in line]
    assert rows
    assert all("| sata-ssd: " in row for row in rows)
