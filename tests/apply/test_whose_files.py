"""Which nginx a change is for, where several run or one was started in a place of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site
from change_files import snapshot
from started import number_in, until, workers_of

from nginx_tune.change.apply.model_journal import RefusedError
from nginx_tune.errors import UsageError

pytestmark = pytest.mark.needs("root", "nginx")
Make = Callable[..., Site]


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
