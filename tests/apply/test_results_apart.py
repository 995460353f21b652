"""What ``apply`` writes of itself takes no place that nginx, or it, reads."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from apply_site import Site
from change_files import snapshot

pytestmark = pytest.mark.needs("root", "nginx")
Make = Callable[..., Site]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _apply(
    site: Site, run_cli: Run, *more: str, **options: object
) -> subprocess.CompletedProcess[str]:
    new = site.root / "new.conf"
    new.write_text(site.server('return 200 "new\\n";'))
    return run_cli(
        "apply", "--overlay", f"{site.tree}/conf.d/site.conf={new}", "-c", str(site.conf),
        "--state-dir", str(site.state.path), "--watch", "200ms", *more, **options,
    )  # fmt: skip


def test_a_result_that_nginx_would_read_is_refused_before(make_site: Make, run_cli: Run) -> None:
    site = make_site()
    before = snapshot(site.tree)
    for result in (
        f"-o {site.tree}/conf.d/site.conf",
        f"-o {site.root}/new.conf",
        f"-f json={site.tree}/conf.d/zz.conf",
        f"-o {site.tree}/nginx.conf",
    ):
        run = _apply(site, run_cli, *result.split())
        assert run.returncode == 2, (result, run.stderr)
        assert "would be overwritten" in run.stderr or "nginx would read the result" in run.stderr
        assert (snapshot(site.tree), site.ask()) == (before, "old\n")
        assert (site.root / "new.conf").read_text().startswith("server")


def test_a_result_beside_the_tree_is_written(make_site: Make, run_cli: Run) -> None:
    site = make_site()
    run = _apply(site, run_cli, "-f", f"json={site.tree}/result.json")
    assert (run.returncode, site.ask()) == (0, "new\n"), run.stderr
    assert '"kept"' in (site.tree / "result.json").read_text()


def test_no_result_takes_the_place_of_a_file_that_was_changed(
    make_site: Make, run_cli: Run
) -> None:
    """``rollback -o nginx.conf`` would put the file back, and then write over it."""
    site = make_site()
    text = site.server('return 200 "new\\n";')
    assert site.apply({"conf.d/site.conf": text}).outcome == "kept"
    changed = site.tree / "conf.d" / "site.conf"
    state = site.root / "state"
    for command in ("rollback", "confirm", "history"):
        for file, said in ((changed, "would be overwritten"), (state / "x", "of the journals")):
            run = run_cli(command, "--state-dir", state, "-f", f"json={file}")
            assert (run.returncode, said in run.stderr) == (2, True), run.stderr
    assert (changed.read_text(), site.ask()) == (text, "new\n")
    assert not (state / "x").exists()
    assert run_cli("history", "--state-dir", state, "-o", site.root / "h").returncode == 0
    for file in (site.conf, changed):
        run = run_cli("observe", "--pid", str(site.pid), "--duration", "1s", "-o", file)
        assert (run.returncode, "overwritten" in run.stderr) == (2, True), run.stderr
    assert changed.read_text() == text
