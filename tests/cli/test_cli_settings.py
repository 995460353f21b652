"""Where an option's value comes from: flag, environment, settings file, default."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., "CompletedProcess[str]"]
FACTS = Path(__file__).resolve().parent.parent / "hosts" / "golden" / "three-disk-node.facts.json"


def kind_of(run: CompletedProcess[str]) -> str:
    assert run.returncode == 0, run.stderr
    return str(json.loads(run.stdout)["kind"])


def test_flag_before_environment_before_file_before_default(run_cli: Run, tmp_path: Path) -> None:
    ask = ("recommend", "--facts", FACTS, "-f", "json")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert kind_of(run_cli(*ask, cwd=below)) == "static"
    (tmp_path / "nginx-tune.toml").write_text('[recommend]\nkind = "media"\n')
    assert kind_of(run_cli(*ask, cwd=below)) == "media"
    env = {"NGINX_TUNE_RECOMMEND_KIND": "proxy"}
    assert kind_of(run_cli(*ask, cwd=below, env=env)) == "proxy"
    assert kind_of(run_cli(*ask, "--kind", "cache", cwd=below, env=env)) == "cache"


@pytest.mark.parametrize(
    ("settings", "env"),
    [
        ('[generate]\nroot = ["/srv/a b"]\nfacts = "{facts}"\n', {}),
        ('[generate]\nroot = "/srv/a b"\nfacts = "{facts}"\n', {}),
        ("", {"NGINX_TUNE_GENERATE_ROOT": "/srv/a b", "NGINX_TUNE_GENERATE_FACTS": str(FACTS)}),
    ],
)
def test_settings_bear_the_names_of_the_options(
    run_cli: Run, tmp_path: Path, settings: str, env: dict[str, str]
) -> None:
    (tmp_path / "nginx-tune.toml").write_text(settings.format(facts=FACTS))
    run = run_cli("generate", cwd=tmp_path, env=env)
    assert 'root "/srv/a b";' in run.stdout, run.stderr


def test_values_of_a_variable_stand_on_a_line_each(run_cli: Run, tmp_path: Path) -> None:
    env = {"NGINX_TUNE_GENERATE_ROOT": "/srv/a\n/srv/b c"}
    run = run_cli("generate", "--facts", FACTS, cwd=tmp_path, env=env)
    assert "/srv/a" in run.stdout
    assert '"/srv/b c"' in run.stdout


def test_a_subcommand_has_a_table_of_its_own(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "nginx-tune.toml").write_text("[scenario.run]\npairs = 0\n")
    run = run_cli("scenario", "run", "thread-pools", cwd=tmp_path)
    assert run.returncode == 2
    assert "--pairs" in run.stderr


def test_the_settings_file_can_be_named(run_cli: Run, tmp_path: Path) -> None:
    named = tmp_path / "other.toml"
    named.write_text('[recommend]\nkind = "media"\n')
    ask = ("recommend", "--facts", FACTS, "-f", "json")
    assert kind_of(run_cli("--config", named, *ask)) == "media"
    assert kind_of(run_cli(*ask, env={"NGINX_TUNE_CONFIG": str(named)})) == "media"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('[recommend]\nkinds = "media"\n', "no setting 'kinds'"),
        ('[recomend]\nkind = "media"\n', "no table or setting 'recomend'"),
        ("recommend = 3\n", "recommend is not a table"),
        ("[recommend]\nkind = 3\n", "--kind"),
        ('[recommend]\nkind = ["media"]\n', "expected one value"),
        ("[recommend]\nroot = [[1]]\n", "expected a value or a list"),
        ("[site]\nlisen = []\n", "a site has no 'lisen'"),
        ('[site]\nlisten = "80"\n', "not a site"),
        ("recommend = [\n", "not TOML"),
        pytest.param(f"a = {'[' * 50_000}", "nested too deeply", id="deep"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(
    run_cli: Run, tmp_path: Path, settings: str, said: str
) -> None:
    (tmp_path / "nginx-tune.toml").write_text(settings)
    run = run_cli("recommend", "--facts", FACTS, cwd=tmp_path)
    assert run.returncode == 2, run.stderr
    assert said in run.stderr
    assert len(run.stderr.splitlines()) == 1
