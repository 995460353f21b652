"""Where an option's value comes from: flag, environment, settings file, default."""

import json
import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from command_line import RunCli
from recorded_hosts import facts_file

FACTS = facts_file("three-disk-node")
CONF = Path(__file__).resolve().parent.parent / "conf" / "valid" / "one-line.conf"


def kind_of(run: CompletedProcess[str]) -> str:
    assert run.returncode == 0, run.stderr
    return str(json.loads(run.stdout)["kind"])


def test_flag_before_environment_before_file_before_default(
    run_cli: RunCli, tmp_path: Path
) -> None:
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
    run_cli: RunCli, tmp_path: Path, settings: str, env: dict[str, str]
) -> None:
    named = tmp_path / "named.toml"
    named.write_text(settings.format(facts=FACTS))
    run = run_cli("--config", named, "generate", cwd=tmp_path, env=env)
    assert 'root "/srv/a b";' in run.stdout, run.stderr


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NGINX_TUNE_RECOMMEND_KIMD", "NGINX_TUNE_RECOMMEND_KIND"),
        ("NGINX_TUNE_RECOMEND_KIND", "NGINX_TUNE_RECOMMEND_KIND"),
        ("NGINX_TUNE_RECOMMENDKIND", "NGINX_TUNE_RECOMMEND_KIND"),
        ("NGINX_TUNE_RECOMMEND_WORK_LOAD", "NGINX_TUNE_RECOMMEND_WORKLOAD"),
    ],
)
def test_a_misspelt_variable_is_refused(run_cli: RunCli, name: str, meant: str) -> None:
    """It would do nothing, and a gate that was asked for would pass."""
    run = run_cli("recommend", "--facts", FACTS, env={name: "media"})
    assert run.returncode == 2
    assert name in run.stderr
    assert meant in run.stderr
    assert run.stderr.count("\n") == 1


def test_the_tests_own_variables_are_no_options(run_cli: RunCli) -> None:
    names = ("NGINX_TUNE_TESTS", "NGINX_TUNE_REQUIRE", "NGINX_TUNE_FUZZ_SECONDS")
    run = run_cli("recommend", "--facts", FACTS, env=dict.fromkeys(names, "5"))
    assert (run.returncode, "in the environment" in run.stderr) == (0, False), run.stderr


def test_the_audit_s_threshold_is_not_lost(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "nginx.conf").write_text("events {}\n")
    env = {"NGINX_TUNE_AUDIT_FAILON": "advice"}
    run = run_cli("audit", tmp_path / "nginx.conf", "--facts", "none", env=env)
    assert run.returncode == 2
    assert "perhaps NGINX_TUNE_AUDIT_FAIL_ON" in run.stderr


@pytest.mark.needs("root")
def test_a_settings_file_of_another_user_is_not_believed(run_cli: RunCli, tmp_path: Path) -> None:
    """It could name the program that root runs, and the file that root writes."""
    path = tmp_path / "nginx-tune.toml"
    path.write_text('[recommend]\nkind = "media"\n')
    ask = ("recommend", "--facts", FACTS, "-f", "json")
    assert kind_of(run_cli(*ask, cwd=tmp_path)) == "media"
    for change in (lambda: os.chown(path, 65534, 65534), lambda: path.chmod(0o666)):
        os.chown(path, 0, 0)
        path.chmod(0o644)
        change()
        run = run_cli(*ask, cwd=tmp_path)
        assert kind_of(run) != "media"
        assert run.stderr.startswith(f"nginx-tune: {path}: not read as root")
        assert f"--config {path}" in run.stderr
        assert len(run.stderr.splitlines()) == 1
        assert kind_of(run_cli("--config", path, *ask, cwd=tmp_path)) == "media"


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    "command", ["confirm", "rollback", "rollback --recover", "history", "audit {conf}"]
)
def test_a_settings_file_of_another_user_stops_nothing(
    run_cli: RunCli, tmp_path: Path, command: str
) -> None:
    """Whoever may write beside root's working directory would have a change taken back."""
    (tmp_path / "own").mkdir()
    words = command.format(conf=CONF).split()
    state = [] if words[0] == "audit" else ["--state-dir", str(tmp_path / "state")]
    tmp_path.chmod(0o1777)
    quiet = run_cli(*words, *state, cwd=tmp_path)
    path = tmp_path / "nginx-tune.toml"
    path.write_text("no TOML [")
    os.chown(path, 65534, 65534)
    run = run_cli(*words, *state, cwd=tmp_path / "own")
    assert (run.returncode, run.stdout) == (quiet.returncode, quiet.stdout)
    first, _, rest = run.stderr.partition("\n")
    assert "not read as root" in first
    assert rest == quiet.stderr
    assert "not read" not in quiet.stderr


@pytest.mark.needs("root")
@pytest.mark.parametrize("name", ["TMPDIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"])
def test_root_keeps_nothing_where_others_could_change_it(
    run_cli: RunCli, tmp_path: Path, name: str
) -> None:
    own, theirs = tmp_path / "own", tmp_path / "theirs"
    own.mkdir()
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    ask = ("recommend", "--facts", FACTS)
    assert run_cli(*ask, env={name: str(own)}).stderr == ""
    for place in (theirs, theirs / "below", own / ".." / "theirs"):
        run = run_cli(*ask, env={name: str(place)})
        assert run.returncode == 0
        assert run.stderr.startswith(f"nginx-tune: {name}={place} is not used as root")
    assert run_cli("runs", "list", env={"HOME": str(theirs)}).stderr == ""


def test_a_subcommand_has_a_table_of_its_own(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "nginx-tune.toml").write_text("[scenario.run]\npairs = 0\n")
    run = run_cli("scenario", "run", "thread-pools", cwd=tmp_path)
    assert run.returncode == 2
    assert "--pairs" in run.stderr


def test_the_settings_file_can_be_named(run_cli: RunCli, tmp_path: Path) -> None:
    named = tmp_path / "other.toml"
    named.write_text('[recommend]\nkind = "media"\n')
    ask = ("recommend", "--facts", FACTS, "-f", "json")
    assert kind_of(run_cli("--config", named, *ask)) == "media"
    assert kind_of(run_cli(*ask, env={"NGINX_TUNE_CONFIG": str(named)})) == "media"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('[recommend]\nkinds = "media"\n', "no setting 'kinds'"),
        ('[recomend]\nkind = "media"\n', "no table or setting 'recomend' (is recommend meant?)"),
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
    run_cli: RunCli, tmp_path: Path, settings: str, said: str
) -> None:
    named = tmp_path / "named.toml"
    named.write_text(settings)
    run = run_cli("--config", named, "recommend", "--facts", FACTS)
    assert run.returncode == 2, run.stderr
    assert said in run.stderr
    assert len(run.stderr.splitlines()) == 1
