"""No result takes the place of what nginx reads, whichever option names it."""

from pathlib import Path

import pytest
from command_line import RunCli
from rows import each_row

from nginx_tune.errors import UsageError
from nginx_tune.nginx.overwriting import refuse_in_tree


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "nginx.conf").write_text(
        f"events {{}} http {{ include {tmp_path}/conf.d/*.conf; }}\n"
    )
    (tmp_path / "conf.d" / "a.conf").write_text("server { listen 8080; root /srv; }\n")
    (tmp_path / "hard.conf").hardlink_to(tmp_path / "conf.d" / "a.conf")
    (tmp_path / "link").symlink_to("conf.d")
    return tmp_path


def _files(site: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}


@each_row(
    "arguments",
    [
        "audit nginx.conf -o conf.d/a.conf",
        "audit nginx.conf -o hard.conf",
        "audit nginx.conf -f json=nginx.conf",
        "audit nginx.conf -f json=conf.d/zz.conf",
        "audit nginx.conf -f json=link/zz.conf",
        "audit nginx.conf --fix-diff --no-test -o conf.d/zz.conf",
        "audit nginx.conf --write-baseline nginx.conf",
        "audit nginx.conf --write-baseline conf.d/a.conf",
        "audit nginx.conf --write-baseline conf.d/zz.conf",
        "plan nginx.conf -f json=conf.d/zz.conf",
        "recommend -c nginx.conf -o conf.d/a.conf",
        "validate nginx.conf --against nginx.conf --dry-run -o conf.d/a.conf",
        "rehearse nginx.conf nginx.conf --no-store -o conf.d/a.conf",
        "learn -c nginx.conf access.log -o conf.d/a.conf",
    ],
)
def test_a_result_below_an_include_is_refused(run_cli: RunCli, site: Path, arguments: str) -> None:
    before = _files(site)
    run = run_cli(*arguments.split(), cwd=site)
    assert run.returncode == 2, run.stderr
    assert "would overwrite it" in run.stderr or "nginx would read the result" in run.stderr
    assert _files(site) == before


@each_row(
    "arguments",
    [
        "-o conf.d/result.txt",
        "-o conf.d/.hidden.conf",
        "-f json=result.conf",
        "-o /dev/null",
        "--write-baseline known.json",
    ],
)
def test_a_result_that_no_include_takes_is_written(
    run_cli: RunCli, site: Path, arguments: str
) -> None:
    before = _files(site)
    run = run_cli("audit", "nginx.conf", "--fail-on", "never", *arguments.split(), cwd=site)
    assert run.returncode == 0, run.stderr
    assert before.items() <= _files(site).items()


def test_patterns_of_directories_and_files_that_are_not_there_yet(tmp_path: Path) -> None:
    (tmp_path / "sites" / "one").mkdir(parents=True)
    (tmp_path / "null").symlink_to("/dev/null")
    asked = [f"{tmp_path}/sites/*/*.conf", f"{tmp_path}/later.conf", f"{tmp_path}/n*", "odd\0*"]
    for name in ("sites/one/new.conf", "later.conf", "nothing"):
        with pytest.raises(UsageError, match="nginx would read the result"):
            refuse_in_tree([str(tmp_path / name)], [], asked)
    refuse_in_tree([str(tmp_path / name) for name in ("sites/new.conf", "null", "x")], [], asked)
