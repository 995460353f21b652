"""The Terraform gate, applied by the real terraform without any provider of a registry."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkouts import MODULES, debian_tree

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "terraform"
GOOD = "events {}\nhttp { server { listen 8080; location / { root /srv; } } }\n"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin") or "nginx"
BAD = "events {}\nhttp { server { location / { aio threads=absent; } } }\n"

pytestmark = pytest.mark.needs("terraform")


class Stack:
    """A copy of the example with a candidate."""

    def __init__(self, folder: Path, conf: str) -> None:
        self.folder = folder / "stack"
        shutil.copytree(EXAMPLE, self.folder)
        self.conf = self.folder / "etc" / "nginx.conf"
        self.conf.parent.mkdir()
        self.conf.write_text(conf)
        self.deployed = folder / "deployed.conf"
        assert self.run("init", "-backend=false").returncode == 0

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["terraform", *arguments, "-no-color"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "CHECKPOINT_DISABLE": "1", "TF_CLI_CONFIG_FILE": "/dev/null"},
        )

    def apply(self, **variables: str) -> subprocess.CompletedProcess[str]:
        values = {
            "conf": "etc/nginx.conf",
            "destination": str(self.deployed),
            "command": str(Path(sys.executable).parent / "nginx-tune"),
            **variables,
        }
        given = [f"-var={name}={value}" for name, value in values.items()]
        return self.run("apply", "-auto-approve", "-input=false", *given)


@pytest.fixture
def served() -> Iterator[Path]:
    """Files that the workers may read: pytest's own directories are private."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "index.html").write_text("hello\n" * 100)
        yield folder


def test_the_example_is_formatted_and_valid(tmp_path: Path) -> None:
    stack = Stack(tmp_path, GOOD)
    assert stack.run("fmt", "-check", "-recursive", "-diff").stdout == ""
    assert "Success" in stack.run("validate").stdout


def test_a_sound_candidate_goes_through_once(tmp_path: Path) -> None:
    stack = Stack(tmp_path, GOOD)
    first = stack.apply()
    assert first.returncode == 0, first.stderr + first.stdout
    assert stack.deployed.read_bytes() == stack.conf.read_bytes()
    # A file that is there keeps its mode.
    stack.deployed.chmod(0o640)
    stack.conf.write_text(GOOD + "# again\n")
    assert stack.apply().returncode == 0
    assert stack.deployed.stat().st_mode & 0o777 == 0o640
    assert "findings" in json.loads((stack.folder / "nginx-tune" / "audit.json").read_text())
    assert "0 added, 0 changed, 0 destroyed" in stack.apply().stdout


def test_a_fault_stops_before_the_deploy_step(tmp_path: Path) -> None:
    stack = Stack(tmp_path, BAD)
    run = stack.apply()
    assert run.returncode == 1
    assert "io-pool-literal-unknown" in run.stdout + run.stderr
    assert not stack.deployed.exists()
    assert stack.apply().returncode == 1, "a gate that failed is tried again"


def test_a_typo_behind_absolute_includes_stops_before_the_deploy_step(tmp_path: Path) -> None:
    stack = Stack(tmp_path, GOOD)
    conf = debian_tree(stack.folder, "proxy_passs http://127.0.0.1:8080;")
    given = {"conf": "etc/nginx/nginx.conf", "accept_missing": json.dumps([MODULES])}
    run = stack.apply(**given)
    assert run.returncode == 1
    assert "proxy_passs" in run.stdout + run.stderr
    away = stack.apply(**given, map=json.dumps(["/etc/nginx=gate"]))
    assert away.returncode == 1
    assert "sites-enabled/*" in away.stdout + away.stderr, "a map past the typo: it was not read"
    site = conf.parent / "sites-available/shop"
    site.write_text(site.read_text().replace("proxy_passs http://127.0.0.1:8080", "return 204"))
    unread = stack.apply(conf=given["conf"])
    assert unread.returncode == 1
    assert not stack.deployed.exists()
    assert stack.apply(**given).returncode == 0
    assert stack.deployed.exists()


@pytest.mark.thorough
def test_an_empty_candidate_stops_before_the_deploy_step(tmp_path: Path) -> None:
    stack = Stack(tmp_path, "")
    run = stack.apply(test="false")
    assert run.returncode == 1
    assert "cf-events-missing" in run.stdout + run.stderr
    assert not stack.deployed.exists()


@pytest.mark.thorough
@pytest.mark.needs("root", "nginx")
def test_what_only_nginx_refuses_stops_before_the_deploy_step(tmp_path: Path) -> None:
    stack = Stack(tmp_path, GOOD.replace("location /", "location ~ (? { } location /"))
    assert stack.apply(test="false").returncode == 0
    stack.deployed.unlink()
    run = stack.apply()
    assert run.returncode == 1
    assert "nginx -t rejects it" in run.stdout + run.stderr
    assert not stack.deployed.exists()


@pytest.mark.thorough
def test_a_change_to_an_included_file_goes_through_the_gate_again(tmp_path: Path) -> None:
    stack = Stack(tmp_path, GOOD.replace("location", "include part.conf; location"))
    part = stack.conf.parent / "part.conf"
    part.write_text("keepalive_timeout 60s;\n")
    assert stack.apply().returncode == 0
    part.write_text("aio threads=absent;\n")
    assert stack.apply().returncode == 1


@pytest.mark.needs("root", "nginx", "probe")
@pytest.mark.parametrize(
    ("gate", "passes"),
    [("hot.mean <= 1us", False), pytest.param("hot.mean <= 10s", True, marks=pytest.mark.thorough)],
)
def test_a_gate_of_the_validation_decides(
    tmp_path: Path, served: Path, gate: str, *, passes: bool
) -> None:
    stack = Stack(tmp_path, GOOD.replace("/srv", str(served)))
    base = tmp_path / "base.conf"
    shutil.copy2(stack.conf, base)
    run = stack.apply(
        against=str(base),
        require=json.dumps([gate]),
        # Tests beside this one run an nginx of their own.
        validate_options=json.dumps(
            ["--nginx", NGINX, "--pairs", "1", "--duration", "2s", "--warmup", "1s"]
        ),
    )
    assert stack.deployed.exists() is passes, run.stdout + run.stderr
    assert (run.returncode == 0) is passes
    assert gate.split(maxsplit=1)[0] in run.stdout + run.stderr
    verdict = json.loads((stack.folder / "nginx-tune" / "verdict.json").read_text())
    assert verdict["gates"][0]["passed"] is passes
