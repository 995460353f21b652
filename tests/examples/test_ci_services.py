"""The files for CI services: valid for them, and their scripts run here."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkouts import MODULES, commit_all, debian_tree
from recorded_hosts import facts_file
from rows import each_row

from nginx_tune import __version__

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ACTION = EXAMPLES / "github-actions" / "action.yml"
WORKFLOW = EXAMPLES / "github-actions" / "nginx.yml"
GITLAB = EXAMPLES / "gitlab-ci" / ".gitlab-ci.yml"
FACTS = facts_file("three-disk-node")
GOOD = "events {}\nhttp { server { listen 8080; location / { root /srv; } } }\n"
BAD = "events {}\nhttp { server { location / { aio threads=absent; } } }\n"
Shell = Callable[..., "subprocess.CompletedProcess[str]"]
RUNNER = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""The environment of a job: what it runs is installed, and no checkout stands before it."""


def with_package(test: Any) -> Any:
    """With a virtual environment of the package, from an index: over this host's network."""
    return pytest.mark.thorough(pytest.mark.alone(test))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("schema", "file"),
    [("github-actions", ACTION), ("github-workflows", WORKFLOW), ("gitlab-ci", GITLAB)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_service_would_take_it(schema: str, file: Path) -> None:
    check = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stdout


def scripts() -> list[str]:
    """Every shell script of the files."""
    workflow = yaml.safe_load(WORKFLOW.read_text())
    steps = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    steps += [step for job in workflow["jobs"].values() for step in job["steps"]]
    gitlab = yaml.safe_load(GITLAB.read_text())
    lines = [
        line
        for job in gitlab.values()
        for part in ("before_script", "script")
        for line in job.get(part, [])
    ]
    return [step["run"] for step in steps if "run" in step] + lines


def installs() -> list[str]:
    return [script for script in scripts() if re.search(r"\bpip3?\b.* install\b", script)]


@each_row("script", installs)
def test_without_a_package_nothing_is_installed_and_one_line_says_what_to_set(
    tmp_path: Path, script: str
) -> None:
    """No name of a package index stands in for it: whoever takes that name would run in the job."""
    (tmp_path / "bin").mkdir()
    for name in ("pip", "python3", "sudo", "apt-get"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\ntouch ran\n")
        (tmp_path / "bin" / name).chmod(0o755)
    for given in ({}, {"NGINX_TUNE_FILES": "", "FILES": ""}):
        run = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={
                "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
                "RUNNER_TEMP": str(tmp_path),
                "GITHUB_ACTION_PATH": str(tmp_path),
                "NGINX_TUNE_REQUIREMENTS": "requirements.txt",
                **given,
            },
        )
        assert run.returncode != 0
        (line,) = run.stderr.splitlines()
        assert re.search(r"FILES: set .* to the place of the files of a release$", line), line
        assert not (tmp_path / "ran").exists()


def test_no_example_names_a_package_of_an_index() -> None:
    """Nobody holds the name there; what is shown installs a wheel or a checkout."""
    listed = subprocess.run(
        ["git", "-C", EXAMPLES.parent, "ls-files", "-z", "--cached", "--others",
         "--exclude-standard", "README.md", "CONTRIBUTING.md", "docs", "examples", "templates",
         ".pre-commit-hooks.yaml"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout  # fmt: skip
    named = re.compile(
        r"(?:pip3?|pipx|uv tool) install\b[^;|`]*\snginx[-_]tune(?:\s|$)|default: nginx-tune$"
    )
    found = [
        (name, line)
        for name in filter(None, listed.split("\0"))
        for line in (EXAMPLES.parent / name).read_text(errors="replace").splitlines()
        if named.search(line)
    ]
    assert [
        one for one in found if not one[0].endswith(("doc_fragments/common.py", "/facts.py"))
    ] == []
    assert named.search("python3 -m pip install --quiet nginx-tune")


@pytest.mark.parametrize("file", [ACTION, WORKFLOW], ids=lambda file: file.name)
def test_actions_of_others_are_pinned_by_commit(file: Path) -> None:
    used = re.findall(r"^\s*(?:- )?uses: (.*)$", file.read_text(), re.MULTILINE)
    others = [one for one in used if not one.startswith("./")]
    assert others or file == ACTION
    for one in others:
        assert re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one), one


@pytest.mark.needs("shellcheck")
@each_row("script", scripts)
def test_shellcheck_finds_nothing(script: str) -> None:
    check = subprocess.run(
        ["shellcheck", "--shell=bash", "-"],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stdout


class Runner:
    """The part of a runner that a composite action of shell steps needs."""

    def __init__(self, work: Path, temporary: Path) -> None:
        self.work, self.temporary = work, temporary
        self.outputs: dict[str, dict[str, str]] = {}
        self.said: list[str] = []

    def run(self, action: dict[str, Any], **given: str) -> int:
        values = {name: one.get("default", "") for name, one in action["inputs"].items()} | given
        for step in action["runs"]["steps"]:
            env = {key: self._expanded(text, values) for key, text in step["env"].items()}
            files = {name: self.temporary / name for name in ("OUTPUT", "STEP_SUMMARY")}
            for file in files.values():
                file.touch()
            run = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=self.work,
                capture_output=True,
                text=True,
                check=False,
                env={
                    **RUNNER,
                    "RUNNER_TEMP": str(self.temporary),
                    "GITHUB_ACTION_PATH": str(self.temporary),
                    "GITHUB_ACTIONS": "true",
                    **{f"GITHUB_{name}": str(file) for name, file in files.items()},
                    **env,
                },
            )
            self.said.append(run.stdout + run.stderr)
            lines = files["OUTPUT"].read_text().splitlines()
            self.outputs[step.get("id", "")] = dict(line.split("=", 1) for line in lines)
            if run.returncode:
                return run.returncode
        return 0

    @staticmethod
    def _expanded(text: str, inputs: dict[str, str]) -> str:
        return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], text)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the action has installed the tool once."""
    temporary = tmp_path_factory.mktemp("runner")
    locked = (EXAMPLES.parent / "tools" / "locked" / "product.txt").read_text()
    action = yaml.safe_load(ACTION.read_text())
    action["runs"]["steps"] = action["runs"]["steps"][:1]
    runner = Runner(temporary, temporary)
    requirements = temporary / "requirements.txt"
    requirements.write_text(f"{locked}nginx-tune=={__version__} --hash=sha256:{'0' * 64}\n")
    assert runner.run(action, files=str(wheel.parent)) != 0, "another hash"
    own = hashlib.sha256(wheel.read_bytes()).hexdigest()
    requirements.write_text(f"{locked}nginx-tune=={__version__} --hash=sha256:{own}\n")
    assert runner.run(action, files=str(wheel.parent)) == 0, runner.said
    return temporary


def audited(tree: Path, installed: Path, **given: str) -> tuple[int, Runner]:
    action = yaml.safe_load(ACTION.read_text())
    action["runs"]["steps"] = action["runs"]["steps"][1:]
    runner = Runner(tree, installed)
    (installed / "STEP_SUMMARY").unlink(missing_ok=True)
    given.setdefault("test", "false")
    return runner.run(action, conf="nginx.conf", **given), runner


@with_package
def test_a_bad_pull_request_fails_with_annotations_sarif_and_summary(
    tmp_path: Path, installed: Path
) -> None:
    (tmp_path / "nginx.conf").write_text(BAD)
    status, runner = audited(tmp_path, installed)
    assert status == 1
    assert "::error file=nginx.conf,line=2," in runner.said[0]
    sarif = json.loads((tmp_path / runner.outputs["audit"]["sarif"]).read_text())
    rules = {result["ruleId"] for result in sarif["runs"][0]["results"]}
    assert "io-pool-literal-unknown" in rules
    assert "io-pool-literal-unknown" in (installed / "STEP_SUMMARY").read_text()


@with_package
def test_a_good_pull_request_passes(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "nginx.conf").write_text(GOOD)
    status, runner = audited(tmp_path, installed, facts=str(FACTS))
    assert status == 0, runner.said


@with_package
@pytest.mark.needs("root", "nginx")
def test_nginx_has_the_last_word_where_there_is_one(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "nginx.conf").write_text("events {} http { server { location ~ (? { } } }")
    assert audited(tmp_path, installed)[0] == 0
    assert audited(tmp_path, installed, test="auto")[0] == 3


@with_package
def test_what_was_there_before_fails_nobody(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "nginx.conf").write_text(BAD)
    commit_all(tmp_path)
    (tmp_path / "nginx.conf").write_text(BAD + "# a remark\n")
    assert audited(tmp_path, installed)[0] == 1
    assert audited(tmp_path, installed, base="main")[0] == 0


ROOT = EXAMPLES.parent
TYPO, FINE = "proxy_passs http://127.0.0.1:8080;", "return 204;"
TREES: dict[str, tuple[str, dict[str, str], int, str]] = {
    "a typo behind absolute includes": (TYPO, {"accept": MODULES}, 1, "proxy_passs"),
    "a sound tree": (FINE, {"accept": MODULES}, 0, ""),
    "what nobody accepted": (FINE, {}, 4, "modules-enabled"),
    "a map that leads past the typo": (
        TYPO, {"accept": MODULES, "map": "/etc/nginx=empty\n/x=etc"}, 4, "sites-enabled",
    ),
    "a map of two lines": (TYPO, {"accept": MODULES, "map": "/x=etc\n/etc/nginx=etc/nginx"}, 1,
                           "proxy_passs"),
}  # fmt: skip
"""A line of the site, what the pipeline is given, its exit status and what it names."""


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A runner's directory whose nginx-tune is this checkout's."""
    program = tmp_path / "runner/nginx-tune/bin/nginx-tune"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m nginx_tune "$@"\n')
    program.chmod(0o755)
    return tmp_path / "runner"


@each_row("name", TREES)
def test_a_pull_request_to_a_tree_of_debians_layout_is_read_whole_or_fails(
    tmp_path: Path, tool: Path, name: str
) -> None:
    line, given, status, named = TREES[name]
    tree = tmp_path / name
    debian_tree(tree, line)
    (tree / "empty").mkdir()
    action = yaml.safe_load(ACTION.read_text())
    action["runs"]["steps"] = action["runs"]["steps"][1:]
    runner = Runner(tree, tool)
    inputs = {"map": given.get("map", ""), "accept-missing": given.get("accept", "")}
    inputs["test"] = "false"
    assert runner.run(action, conf="etc/nginx/nginx.conf", **inputs) == status, runner.said
    assert named in runner.said[0]
    script = "\n".join(yaml.safe_load(GITLAB.read_text())["nginx-audit"]["script"])
    run = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        env={
            "PATH": f"{tool}/nginx-tune/bin:{os.environ['PATH']}",
            "NGINX_CONF": "etc/nginx/nginx.conf",
            "TEST": "",
            "NGINX_MAP": given.get("map", ""),
            "NGINX_ACCEPT_MISSING": given.get("accept", ""),
        },
    )
    assert run.returncode == status, run.stdout + run.stderr
    assert named in run.stdout


@with_package
def test_an_input_is_never_run(tmp_path: Path, installed: Path) -> None:
    name = "a$(touch ran).conf"
    (tmp_path / name).write_text(GOOD)
    action = yaml.safe_load(ACTION.read_text())
    action["runs"]["steps"] = action["runs"]["steps"][1:]
    runner = Runner(tmp_path, installed)
    assert runner.run(action, conf=name) == 0, runner.said
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def job(tmp_path: Path, installed: Path) -> Shell:
    """Runs a job's script where the tool is installed, in the tree of a fleet's repository."""
    tree = tmp_path / "tree"
    (tree / "etc/nginx/generated").mkdir(parents=True)
    (tree / "hosts").mkdir()
    shutil.copy2(FACTS, tree / "hosts" / "web1.facts.json")
    (tree / "etc/nginx/nginx.conf").write_text(GOOD)
    path = f"{installed}/nginx-tune/bin:{os.environ['PATH']}"

    def run(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script],
            cwd=tree,
            capture_output=True,
            text=True,
            check=False,
            env={**RUNNER, "PATH": path, "NGINX_CONF": "etc/nginx/nginx.conf"},
        )

    made = run("nginx-tune generate --facts hosts/web1.facts.json")
    (tree / "etc/nginx/generated/web1.conf").write_text(made.stdout)
    return run


def drift_checks() -> list[str]:
    return _both("generated")


def _both(job: str) -> list[str]:
    """The script of a job on GitHub and on GitLab."""
    workflow = yaml.safe_load(WORKFLOW.read_text())
    (step,) = [s for s in workflow["jobs"][job]["steps"] if "name" in s]
    (script,) = yaml.safe_load(GITLAB.read_text())[f"nginx-{job}"]["script"]
    return [step["run"], script]


@with_package
@pytest.mark.parametrize("script", drift_checks(), ids=["github", "gitlab"])
def test_drift_of_a_generated_file_fails(job: Shell, script: str) -> None:
    passed = job(script)
    assert passed.returncode == 0, passed.stderr
    job("sed -i 's/^events {/events { multi_accept on;/' etc/nginx/generated/web1.conf")
    failed = job(script)
    assert failed.returncode == 1
    assert "-events { multi_accept on;" in failed.stdout


@with_package
@pytest.mark.parametrize("script", _both("plan"), ids=["github", "gitlab"])
def test_a_plan_for_each_host_is_an_artefact_and_the_tree_stays(job: Shell, script: str) -> None:
    made = job(f"export GITHUB_STEP_SUMMARY=$PWD/summary.md\n{script}")
    assert made.returncode == 0, made.stderr
    plan = json.loads(job("cat plans/web1.json").stdout)
    assert plan["files"], "this host has decisions for that file"
    assert all(one["reason"] for one in plan["files"][0]["hunks"])
    review = job("cat plans/web1.md").stdout
    assert "```diff" in review
    assert plan["files"][0]["hunks"][0]["decision"] in review
    if "STEP_SUMMARY" in script:
        assert job("cat summary.md").stdout == f"# web1\n\n{review}"
    assert job("cat etc/nginx/nginx.conf").stdout == GOOD


@with_package
@pytest.mark.parametrize("name", ["generated", "plan"])
def test_a_name_of_a_facts_file_is_no_command(job: Shell, name: str) -> None:
    script, _ = _both(name)
    job("cp hosts/web1.facts.json $'hosts/a\\n::error file=x::pwned.facts.json'")
    run = job(f"export GITHUB_STEP_SUMMARY=$PWD/summary.md\n{script}")
    assert run.returncode == 2
    assert "pwned" not in run.stdout + run.stderr
    (line,) = [one for one in run.stdout.splitlines() if one.startswith("::")]
    assert line.startswith("::error::hosts/NAME.facts.json: NAME has ")


@with_package
def test_gitlab_gets_its_code_quality_report(job: Shell) -> None:
    script = "\n".join(yaml.safe_load(GITLAB.read_text())["nginx-audit"]["script"])
    assert job(script).returncode == 0
    report = json.loads(job("cat gl-code-quality-report.json").stdout)
    assert {one["location"]["path"] for one in report} <= {"etc/nginx/nginx.conf"}
    assert "<testsuites" in job("cat nginx-tune.xml").stdout


@with_package
def test_where_nothing_can_be_emulated_the_job_warns(job: Shell) -> None:
    """The pure package has no load probe: validation cannot run, which is said and no success."""
    workflow = yaml.safe_load(WORKFLOW.read_text())
    script = workflow["jobs"]["validate"]["steps"][-2]["run"]
    job("mkdir base bin && cp -r etc base/")
    job("printf '#!/bin/sh\\nexec \"$@\"\\n' > bin/sudo")
    run = job(f"chmod +x bin/sudo; PATH=$PWD/bin:$PATH\n{script}")
    assert run.returncode == 0, run.stderr
    assert "::warning::this runner cannot emulate the host" in run.stdout


@with_package
def test_a_validation_without_the_load_probe_is_no_warning(job: Shell) -> None:
    for script in scripts():
        if "doctor --require" in script:
            (line,) = (one for one in script.splitlines() if "doctor --require" in one)
            run = job(line)
            assert run.returncode == (1 if "exit 1" in line else 4), run.stderr
            assert "no load probe" in run.stdout
