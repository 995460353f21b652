"""``tools/build-site``: all pages as one site, in which no link leads nowhere."""

import importlib.machinery
import importlib.util
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from types import ModuleType

import pytest

from nginx_tune.cli.main import COMMANDS
from nginx_tune.report.decisions import decision_titles
from nginx_tune.report.explained import metric_pages
from nginx_tune.report.rule_page import EVERY

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "build-site"

pytestmark = [pytest.mark.needs("sphinx"), pytest.mark.thorough]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this checkout."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, TOOL, target]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert run.returncode == 0, run.stderr
    return target


def words(page: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def test_each_page_command_and_rule_is_there(site: Path) -> None:
    for source in (*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), ROOT / "benchmarks/README.md"):
        name = "index" if source.name == "README.md" else source.stem
        assert (site / source.relative_to(ROOT).with_name(f"{name}.html")).exists(), source
    for command in COMMANDS:
        assert (site / f"reference/commands/{command}.html").exists(), command
    for rule in EVERY:
        assert rule.id in words(site / f"docs/rules/{rule.id}.html")


def test_the_reference_names_options_decisions_and_metrics(site: Path) -> None:
    validate = words(site / "reference/commands/validate.html")
    assert "--against CONF" in validate
    assert "at most for TIME (but at least --pairs pairs, or 7)" in validate
    assert "sudo nginx-tune scenario run pool-overflow" in words(
        site / "reference/commands/scenario.html"
    )
    decisions = words(site / "reference/decisions.html")
    assert all(name in decisions for name in decision_titles())
    metrics = words(site / "reference/metrics.html")
    assert all(name in metrics for page in metric_pages().values() for name in page.metrics)


@pytest.fixture
def build_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, for a checkout of its own in which nothing is yet."""
    monkeypatch.syspath_prepend(str(TOOL.parent))
    loader = importlib.machinery.SourceFileLoader("build_site", str(TOOL))
    spec = importlib.util.spec_from_loader("build_site", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    root = tmp_path / "checkout"
    (root / "tools").mkdir(parents=True)
    (root / "docs").mkdir()
    monkeypatch.setattr(module, "ROOT", root)
    monkeypatch.setattr(module, "reference_pages", dict)
    monkeypatch.setattr(sys, "argv", ["build-site", str(tmp_path / "site")])
    monkeypatch.chdir(tmp_path)
    (root / "README.md").write_text("# Top\n\n[below](docs/README.md), [folder](docs)\n")
    (root / "docs/README.md").write_text("# Below\n\n[top](../README.md#top)\n")
    (root / "tools/site-navigation.toml").write_text(
        '[[section]]\ncaption = "All"\npages = ["docs/index"]\n[below]\n'
    )
    return module


@pytest.mark.filterwarnings("ignore")
def test_links_to_readmes_and_directories_lead_to_their_indexes(
    build_site: ModuleType, tmp_path: Path
) -> None:
    assert build_site.main() == 0
    top = (tmp_path / "site/index.html").read_text()
    assert re.findall(r'<a class="reference internal" href="([^"]+)"><span class="std', top) == [
        "docs/index.html", "docs/index.html",
    ]  # fmt: skip
    assert 'href="../index.html#top"' in (tmp_path / "site/docs/index.html").read_text()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("docs/README.md", "# Below\n\n[gone](gone.md)\n", "gone.md"),
        ("docs/README.md", "# Below\n\n[top](../README.md#gone)\n", "gone"),
        ("docs/alone.md", "# Alone\n", "alone.md"),
    ],
    ids=["page", "anchor", "outside-of-the-navigation"],
)
def test_what_leads_nowhere_fails_the_build(
    name: str, text: str, said: str, build_site: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    (build_site.ROOT / name).write_text(text)
    assert build_site.main() != 0
    assert said in capfd.readouterr().err
