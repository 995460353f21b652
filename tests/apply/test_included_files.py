"""Whose files are written: those that the includes of the right nginx reach."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site
from change_files import snapshot
from started import number_in, until, workers_of

from nginx_tune.change.apply import calls
from nginx_tune.change.apply.model_journal import RefusedError
from nginx_tune.conf.dumps import printed
from nginx_tune.errors import UsageError

pytestmark = pytest.mark.needs("root", "nginx")
Make = Callable[..., Site]
HEAD = "# configuration file {}:\n"


@pytest.fixture
def outside(root: Path) -> Path:
    path = root / "outside" / "cron"
    path.parent.mkdir()
    return path


def test_a_line_that_looks_like_a_head_includes_nothing(make_site: Make, outside: Path) -> None:
    """nginx -T prints it as it prints the heads of files."""
    outside.write_text("# theirs\n")
    site = make_site(http=HEAD.format(outside) + "# pasted")
    with pytest.raises(RefusedError, match=r"cron: .*nginx\.conf does not include it"):
        site.apply({str(outside): "# ours\n"})
    assert outside.read_text() == "# theirs\n"


def test_a_change_does_not_include_a_file_by_a_comment(
    make_site: Make, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for a moment: cron would look into a directory of its own meanwhile."""
    site = make_site()
    before = snapshot(site.tree)
    told: list[str] = []
    for name in ("exchange", "rename_new"):
        monkeypatch.setattr(calls, name, lambda *_, name=name: told.append(name))
    new = f"{site.server()}{HEAD.format(outside)}* * * * * root id\n".replace("\n*", "\n#")
    with pytest.raises(RefusedError, match="cron: nothing includes it"):
        site.apply({"conf.d/site.conf": new, str(outside): "* * * * * root id\n"})
    assert not told
    assert not list(outside.parent.iterdir())
    assert snapshot(site.tree) == before


def test_files_that_hold_such_lines_and_new_includes_are_changed(
    make_site: Make, outside: Path
) -> None:
    site = make_site(server="")
    pasted = f"{HEAD.format(site.conf)}{HEAD.format(outside)}{site.server()}"
    kept = site.apply(
        {
            "nginx.conf": site.text(http=f"include {outside};"),
            "conf.d/site.conf": pasted,
            str(outside): "server_tokens off;\n",
        }
    )
    assert (kept.outcome, kept.reason) == ("kept", "")
    again = site.apply({"conf.d/site.conf": pasted + "# more\n", str(outside): "# none\n"})
    assert (again.outcome, again.reason) == ("kept", "")


def test_a_file_is_printed_whole_under_its_head() -> None:
    for head, content, found in (
        (b"/c.d/../a", b"x\n", ["/a"]),
        (b"/a", b"x", []),
        (b"/a", b"y\n", []),
        (b"/b", b"x\n", []),
    ):
        data = b"# configuration file %s:\nx\n\n# configuration file /z:\n\n" % head
        assert printed(data, {"/a": content}) == found, (head, content)


def test_a_named_master_that_does_not_read_the_files_is_refused(
    make_site: Make, root: Path
) -> None:
    first = make_site()
    (root / "two").mkdir()
    second = Site(root / "two", first.binary)
    second.start()
    edits = {"conf.d/site.conf": second.server('return 200 "new\\n";')}
    before = snapshot(second.tree)
    said = f"process {first.pid} reads {first.conf}, but the change is of {second.tree}/conf.d"
    for reloads in (True, False):
        with pytest.raises(RefusedError, match=said):
            second.apply(edits, pid=first.pid, reloads=reloads)
        assert snapshot(second.tree) == before
    second.stop(second.pid)
    with pytest.raises(RefusedError, match=said):
        second.apply(edits, pid=first.pid)
    assert snapshot(second.tree) == before
    assert not second.state.all()
    edits = {"conf.d/site.conf": first.server('return 200 "new\\n";')}
    assert first.apply(edits, pid=first.pid, conf_path=str(second.conf)).outcome == "kept"
    assert first.ask() == "new\n"


def test_files_alone_are_tested_as_the_running_nginx_was_started(root: Path) -> None:
    site = Site(root, "/usr/sbin/nginx")
    (root / "sub").mkdir()
    site.conf.write_text(site.text("pid sub/nginx.pid;"))
    subprocess.run([site.binary, "-p", root, "-c", site.conf], check=True, capture_output=True)
    until(lambda: workers_of(number_in(root / "sub" / "nginx.pid")))
    edits = {"conf.d/site.conf": site.server("return 204;")}
    with pytest.raises(UsageError, match="--canary"):
        site.apply(edits, reloads=False, canaries=[f"http://127.0.0.1:{site.port}/"])
    assert site.apply(edits, reloads=False).outcome == "kept"
