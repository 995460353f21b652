"""What relative paths of a configuration stand on where no ``-p`` is given."""

from pathlib import Path

import pytest

from nginx_tune.documents.facts import Nginx, Running
from nginx_tune.nginx.subject import own_prefix

BUILT, GIVEN = "/usr/share/nginx", "/srv/site/"


@pytest.fixture
def nginx(tmp_path: Path) -> Nginx:
    """One that runs on a configuration of its own, with a ``-p``."""
    conf = tmp_path / "conf" / "nginx.conf"
    conf.parent.mkdir()
    conf.touch()
    (tmp_path / "link.conf").symlink_to(conf)
    return Nginx(prefix=BUILT, running=Running(pid=1, conf_path=str(conf), prefix=GIVEN))


def test_the_masters_own_holds_for_what_it_reads(nginx: Nginx, tmp_path: Path) -> None:
    assert own_prefix(nginx) == GIVEN
    assert own_prefix(nginx, str(tmp_path / "conf" / "nginx.conf")) == GIVEN
    assert own_prefix(nginx, str(tmp_path / "link.conf")) == GIVEN


def test_a_candidate_beside_it_is_started_as_it_is(nginx: Nginx, tmp_path: Path) -> None:
    own = str(tmp_path / "conf" / "nginx.conf")
    assert own_prefix(nginx, str(tmp_path / "new.conf"), own) == GIVEN


def test_another_configuration_stands_on_what_was_built(nginx: Nginx, tmp_path: Path) -> None:
    assert own_prefix(nginx, str(tmp_path / "other.conf")) == BUILT
    assert own_prefix(Nginx(prefix=BUILT), "/etc/nginx/nginx.conf") == BUILT
