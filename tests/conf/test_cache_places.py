"""Where nginx would delete what is not a cache's."""

from __future__ import annotations

import pytest

from nginx_tune.conf.cache_places import why_no_place


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/", "the system's"),
        ("//var//log/", "the system's"),
        ("/srv/../etc", "the system's"),
        ("/srv/www", "which is served"),
        ("/srv", "which is served"),
        ("/srv/logs", "nginx would delete"),
        ("/data", "another cache"),
        ("/srv/www2", ""),
        ("/srv/www/cache", ""),
        ("/var/cache/nginx", ""),
        ("/data/b", ""),
    ],
)
def test_places(path: str, says: str) -> None:
    caches = [path, "/data/b"]
    why = why_no_place(path, served=["/srv/www/"], kept=["/srv/logs/a.log"], caches=caches)
    assert says in why
    assert bool(why) == bool(says)
