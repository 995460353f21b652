"""Manual pages, shell completions and the schema of the settings file."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from command_line import RunCli
from jsonschema import Draft202012Validator
from recorded_hosts import facts_file

from nginx_tune.cli.inputs import read_toml
from nginx_tune.cli.main import COMMANDS, cli
from nginx_tune.cli.manual import SHELLS, ManPage, completion_script, manual_pages, render_man_page

ROOT = Path(__file__).resolve().parents[2]
FACTS = facts_file("three-disk-node")


def test_what_stands_in_share_is_current() -> None:
    """The completions are click's own text and differ by its version: shells try them below."""
    wanted = {f"man/man1/{name}": text for name, text in manual_pages(cli).items()}
    share = ROOT / "share"
    found = {str(p.relative_to(share)): p.read_text() for p in share.rglob("*") if p.is_file()}
    for shell, path in SHELLS.items():
        (function,) = re.findall(r"_nginx_tune\w*_completion", completion_script(cli, shell))[:1]
        assert function in found.pop(path)
    assert found == wanted, "run tools/write-man-pages"


def test_every_command_has_help_and_a_page() -> None:
    pages = manual_pages(cli)
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert command.help
        assert f".SH NAME\nnginx\\-tune\\-{name} \\- " in pages[f"nginx-tune-{name}.1"]


@pytest.mark.needs("mandoc")
def test_no_page_has_a_fault_that_mandoc_knows(tmp_path: Path) -> None:
    for name, text in manual_pages(cli).items():
        (tmp_path / name).write_text(text)
    lint = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", *sorted(map(str, tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
    )
    others = [line for line in lint.stdout.splitlines() if "missing date" not in line]
    assert others == []


def test_nothing_in_a_text_is_a_request_of_roff() -> None:
    page = ManPage(
        name="x",
        version="1",
        summary="s",
        command="x",
        usage="[A]",
        description=".so /etc/passwd\n\n'br \\fBbold --long-option",
    )
    body = render_man_page(page).partition(".SH DESCRIPTION\n")[2].splitlines()
    assert body == ["\\&.so /etc/passwd", ".PP", "\\(aqbr \\efBbold \\-\\-long\\-option"]


def _completions(shell: str, script: str, folder: Path) -> str:
    """What a real shell offers, with the program on its PATH."""
    program = Path(sys.executable).parent
    run = subprocess.run(
        [shell, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": f"{program}:{os.environ['PATH']}", "HOME": str(folder)},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.long
def test_bash_completes_commands_options_and_files(tmp_path: Path) -> None:
    (tmp_path / "facts.json").touch()
    source = ROOT / "share" / SHELLS["bash"]
    ask = f"source {source}; COMP_WORDS=(nginx-tune {{}}); COMP_CWORD={{}}"
    show = "_nginx_tune_completion nginx-tune 2>/dev/null; printf '%s\\n' \"${COMPREPLY[@]}\""
    assert _completions("bash", f"{ask.format('au', 1)}; {show}", tmp_path).split() == ["audit"]
    levels = _completions("bash", f"{ask.format('audit --fail-on e', 3)}; {show}", tmp_path)
    assert levels.split() == ["error"]


@pytest.mark.needs("fish")
def test_fish_completes_commands_and_files(tmp_path: Path) -> None:
    (tmp_path / "facts.json").touch()
    ask = f"source {ROOT / 'share' / SHELLS['fish']}; complete -C '{{}}'"
    assert "audit" in _completions("fish", ask.format("nginx-tune au"), tmp_path).split()
    files = _completions("fish", ask.format("nginx-tune recommend --facts fa"), tmp_path)
    assert "facts.json" in files


@pytest.mark.needs("zsh")
def test_zsh_can_load_its_completion(tmp_path: Path) -> None:
    file = ROOT / "share" / SHELLS["zsh"]
    script = f"autoload -U compinit; compinit -u -D; source {file}; echo $_comps[nginx-tune]"
    assert _completions("zsh", script, tmp_path).strip() == "_nginx_tune_completion"


def _validator(run_cli: RunCli) -> Draft202012Validator:
    schema = json.loads(run_cli("schema", "settings").stdout)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ('[audit]\nfail-on = "warning"\nignore = ["io", "ls-*"]', True),
        ('[audit]\nfail_on = "never"\nselect = "io"', True),
        ('[site]\nlisten = ["443"]\n[[site.upstreams]]\nname = "o"\nservers = ["a"]', True),
        ("[scenario.run]\npairs = 8", True),
        ('[audit]\nfail-on = "worst"', False),
        ('[audit]\nfale-on = "error"', False),
        ("[scenario.run]\npairs = 0", False),
        ("[site]\nlisten = 80", False),
        ("[audits]", False),
    ],
)
def test_the_schema_of_the_settings_says_what_the_program_says(
    run_cli: RunCli, tmp_path: Path, text: str, *, is_right: bool
) -> None:
    settings = tmp_path / "nginx-tune.toml"
    settings.write_text(text)
    value: dict[str, Any] = read_toml(settings)
    assert _validator(run_cli).is_valid(value) is is_right
    name = next(iter(value))
    ask = {
        "scenario": ("scenario", "run", "no-such"),
        "site": ("generate", "--facts", FACTS, "-o", "nginx.conf"),
    }
    run = run_cli("--config", settings, *ask.get(name, ("audit", "no.conf")), cwd=tmp_path)
    refused = any(words in run.stderr for words in ("settings file", "invalid value", "listen"))
    assert refused is not is_right, run.stderr
