"""What versions of nginx do with pools, reuseport and a test while they serve (A12, B6)."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from nginx_versions import marked
from versions import WORKERS, look

from nginx_tune.audit.engine import audit
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import parse_text
from nginx_tune.nginx.binary import find_series


@pytest.fixture
def work() -> Iterator[Path]:
    """A directory that the workers, who are nobody, may enter."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory / "site"
    shutil.rmtree(directory)


@pytest.mark.needs("nginx", "strace")
@pytest.mark.parametrize("series", ["installed", *marked("1.18", "1.26", "1.30")])
def test_each_keeps_to_what_is_said_of_its_version(series: str, work: Path) -> None:
    program = "/usr/sbin/nginx" if series == "installed" else str(find_series(series))
    row = look(program, work)
    assert (row.aio_threads, row.reuseport) == ("accepted", "accepted")
    assert (row.queues, row.queues_late) == (WORKERS, WORKERS)
    assert row.test_listens == 0
    assert row.asked > 100
    assert row.lost == 0
    found = audit(
        parse_text(
            "events {} http { server { listen 80 reuseport; location / { root /srv;"
            " aio threads; } } } worker_processes 3;"
        ),
        linux(version=row.version),
    )
    rules = {one.rule for one in found.findings}
    assert not rules & {"ls-reuseport-old-bugs", "cf-parameter-unknown", "io-aio-buggy-version"}
