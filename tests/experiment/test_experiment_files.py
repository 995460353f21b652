"""An experiment as a page: what was settled comes back as it went, and is run as validate does."""

import json
from pathlib import Path

import msgspec
import pytest
from command_line import RunCli
from hypothesis import given
from hypothesis import strategies as st
from rows import each_row

from nginx_tune.documents.lab import Lab
from nginx_tune.documents.loadplan import Arrivals
from nginx_tune.documents.scenario import ExperimentSpec, ScenarioClass, SiteLoad
from nginx_tune.errors import UsageError
from nginx_tune.experiment.scenario.files import list_scenarios, load_experiment
from nginx_tune.measure.load.classes import default_classes
from nginx_tune.report.experiment import render_experiment

SPEC = ExperimentSpec(candidate="/etc/new.conf", load=SiteLoad(classes=default_classes()))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SECONDS = st.floats(0.001, 1e6)
CLASSES = st.builds(
    ScenarioClass,
    name=TEXT,
    source=st.sampled_from(["random", "hot", "memory"]),
    arrivals=st.builds(Arrivals, kind=st.just("poisson"), rate_per_second=SECONDS),
    connections=st.integers(1, 512),
    headers=st.dictionaries(TEXT, TEXT, max_size=2),
    exponent=st.none() | st.floats(0, 2),
)
LABS = st.none() | st.sampled_from([one.lab for one in list_scenarios()])
SPECS = st.builds(
    ExperimentSpec,
    baseline=TEXT,
    candidate=TEXT,
    prefix=st.none() | TEXT,
    lab=LABS,
    load=st.builds(SiteLoad, classes=st.lists(CLASSES, max_size=3), notes=st.lists(TEXT)),
    requires=st.lists(TEXT, max_size=2),
    pairs=st.integers(1, 100),
    warmup_seconds=st.none() | SECONDS,
    max_seconds=st.none() | SECONDS,
    self_check=st.booleans(),
    found=st.lists(TEXT, max_size=3),
)


@pytest.mark.long
@given(SPECS)
def test_the_page_says_all_of_it(spec: ExperimentSpec) -> None:
    assert msgspec.convert(msgspec.toml.decode(render_experiment(spec)), ExperimentSpec) == spec


def test_a_path_that_is_no_utf_8_is_told() -> None:
    spec = msgspec.structs.replace(
        SPEC, candidate=b"/srv/caf\xe9.conf".decode(errors="surrogateescape")
    )
    with pytest.raises(UsageError, match="not UTF-8"):
        render_experiment(spec)


@each_row(
    ("pairs", "most", "said"),
    [
        (6, 600.0, "7 pairs of runs of 10 s each, with set-up about 2 min 53 s; more, until"),
        (6, 90.0, "no outcome: 7 pairs take about 2 min 53 s, more than the 1 min 30 s of --max-"),
        (6, 90.0, "give --max-time 3min, or a shorter --duration"),
        (6, None, "6 pairs of runs of 10 s each, with set-up about 2 min 29 s."),
        (3, None, "no outcome: 3 of 6 pairs are run"),
    ],
)
def test_a_dry_run_has_the_pairs_that_an_outcome_takes(
    pairs: int, most: float | None, said: str
) -> None:
    spec = msgspec.structs.replace(
        SPEC, pairs=pairs, max_seconds=most, warmup_seconds=2.0, duration_seconds=8.0
    )
    assert said in render_experiment(spec)


def test_a_fault_is_named_with_its_file(tmp_path: Path) -> None:
    text = render_experiment(msgspec.structs.replace(SPEC, pairs=2))
    file = tmp_path / "odd.toml"
    for right, wrong, said in (
        ("pairs = 2", "pairs = 0", "pairs: not from 1"),
        ("pairs = 2", "paris = 2", "an experiment has no 'paris'"),
        ("pairs = 2", 'pairs = "two"', "not an experiment"),
        ("pairs = 2", "duration_seconds = -1.0", "duration_seconds"),
        ("pairs = 2", "scale = 2.0", "scale"),
        ('candidate = "/etc/new.conf"', 'candidate = ""', "candidate: none"),
        ('name = "hot"', 'name = "cold"', "appears twice"),
    ):
        assert right in text
        file.write_text(text.replace(right, wrong))
        with pytest.raises(UsageError, match=f"^{file}.*{said}"):
            load_experiment(str(file), lambda path: msgspec.toml.decode(path.read_text()))


def test_a_lab_of_defaults_stays_a_lab(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text(render_experiment(msgspec.structs.replace(SPEC, lab=Lab())))
    found = load_experiment(str(file), lambda path: msgspec.toml.decode(path.read_text()))
    assert isinstance(found, ExperimentSpec)
    assert found.lab == Lab()


def test_a_scenario_shown_is_the_one_that_runs(run_cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "shown.toml"
    file.write_text(run_cli("scenario", "show", "cold-open").stdout)
    found = load_experiment(str(file), lambda path: msgspec.toml.decode(path.read_text()))
    assert found in list_scenarios()
    unknown = run_cli("scenario", "show", "cold")
    assert unknown.returncode == 2
    assert "cold-open" in unknown.stderr


CONF = """
events {{}}
http {{
    {}
    server {{
        listen 127.0.0.1:18931;
        root {};
        location = /ping {{ return 200 pong; }}
        location /api/ {{ proxy_pass http://127.0.0.1:18932; }}
    }}
}}
"""


@pytest.mark.needs("root", "nginx", "probe")
def test_without_a_number_of_pairs_it_measures_until_it_is_settled(
    run_cli: RunCli, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "one.bin").write_bytes(bytes(5000))
    for name, more in (("old", ""), ("new", "sendfile on;")):
        (tmp_path / f"{name}.conf").write_text(CONF.format(more, tmp_path))
    run = run_cli("validate", "new.conf", "--against", "old.conf", "--dry-run", cwd=tmp_path)
    written = msgspec.toml.decode(run.stdout)
    assert ("pairs" in written, written["max_seconds"]) == (False, 600)  # as many as settle it


@pytest.mark.needs("root", "nginx", "probe")
def test_what_is_settled_runs_as_validate_does(run_cli: RunCli, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    root = tmp_path / "www"
    root.mkdir()
    (root / "one.bin").write_bytes(bytes(5000))
    for name, more in (("old", ""), ("new", "sendfile on;")):
        (tmp_path / f"{name}.conf").write_text(CONF.format(more, root))
    page = tmp_path / "experiment.toml"
    settled = run_cli(
        *("validate", "new.conf", "--against", "old.conf", "--dry-run", "-o", page),
        *(
            "--pairs",
            "1",
            "--duration",
            "500ms",
            "--warmup",
            "100ms",
            "--require",
            "hot.truncated == 0",
        ),
        cwd=tmp_path,
    )
    assert (settled.returncode, settled.stdout) == (0, ""), settled.stderr
    text = page.read_text()
    assert "max_seconds" not in msgspec.toml.decode(text)  # so many pairs, whatever they show
    assert str(tmp_path / "old.conf") in text
    assert "in the place of 127.0.0.1:18932" in text
    assert "/api/: /api/, 200" in text
    run = run_cli("scenario", "run", page, "--no-store", "-f", "json")
    verdict = json.loads(run.stdout)
    assert verdict["schema"] == "nginx-tune/verdict/1"
    assert verdict["environment"]["differences"] == msgspec.toml.decode(text)["found"]
    assert verdict["gates"][0]["passed"] is True
    classes = {one["name"].partition(".")[0] for one in verdict["metrics"]}
    assert classes >= {"hot", "cold", "memory", "api"}
