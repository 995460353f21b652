"""The hooks, run by pre-commit itself from a checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkouts import MODULES, commit_all, debian_tree
from recorded_hosts import facts_file
from rows import each_row

ROOT = Path(__file__).resolve().parents[2]
GOOD = "events {}\nhttp { server { listen 8080; location / { root /srv; } } }\n"
BAD = "events {}\nhttp { server { location / { aio threads=absent; } } }\n"


# Installs packages, which takes this host's network.
pytestmark = [pytest.mark.thorough, pytest.mark.alone]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def run_hooks(tree: Path, checkout: Path, cache: Path, config: str) -> tuple[int, str]:
    revision = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (tree / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {checkout}\n    rev: {revision}\n    hooks:\n{config}"
    )
    commit_all(tree)
    run = subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never"],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        # Without cargo: a hook needs no load probe.
        env={
            **os.environ,
            "PRE_COMMIT_HOME": str(cache),
            "CARGO": "/bin/false",
            "NGINX_TUNE_REQUIRE_RUST": "",
        },
    )
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize(("conf", "passes"), [(GOOD, True), (BAD, False)])
def test_audit_judges_the_whole_tree(
    tmp_path: Path, checkout: Path, cache: Path, conf: str, *, passes: bool
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "nginx.conf").write_text("include site.conf;\n")
    (tmp_path / "etc" / "site.conf").write_text(conf)
    config = "      - id: nginx-tune-audit\n        args: [etc/nginx.conf]\n"
    status, said = run_hooks(tmp_path, checkout, cache, config)
    assert ("Passed" in said) is passes, said
    assert (status == 0) is passes
    if not passes:
        assert "io-pool-literal-unknown" in said
        assert "etc/site.conf:2" in said


@each_row(("options", "passes"), [("", False), (f", --accept-missing, '{MODULES}'", True)])
def test_a_tree_of_debians_layout_is_read_whole_or_fails(
    tmp_path: Path, checkout: Path, cache: Path, options: str, *, passes: bool
) -> None:
    for line, is_sound in (("return 204;", True), ("proxy_passs http://127.0.0.1:8080;", False)):
        tree = tmp_path / f"{is_sound}"
        debian_tree(tree, line)
        names = f"etc/nginx/nginx.conf, --map, /etc/nginx=etc/nginx{options}"
        config = f"      - id: nginx-tune-audit\n        args: [{names}]\n"
        status, said = run_hooks(tree, checkout, cache, config)
        assert (status == 0) is (passes and is_sound), said
        assert ("proxy_passs" in said) is not is_sound


def test_an_edited_generated_file_fails_with_a_diff(
    tmp_path: Path, checkout: Path, cache: Path
) -> None:
    facts = facts_file("three-disk-node")
    shutil.copy2(facts, tmp_path / "facts.json")
    made = subprocess.run(
        [sys.executable, "-m", "nginx_tune", "generate", "--facts", "facts.json"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    ).stdout
    conf = tmp_path / "nginx.conf"
    conf.write_bytes(made)
    config = "      - id: nginx-tune-generated\n"
    status, said = run_hooks(tmp_path, checkout, cache, config)
    assert status == 0, said
    conf.write_bytes(made.replace(b"events {", b"events {\n    multi_accept on;", 1))
    status, said = run_hooks(tmp_path, checkout, cache, config)
    assert status != 0
    assert "-    multi_accept on;" in said
