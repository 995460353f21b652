"""Where nginx would delete what is not a cache's."""

from conf_readers import tree_of
from rows import each_row

from nginx_tune.conf.served import places_of, why_no_place


@each_row(
    ("path", "says"),
    [
        ("/", "belongs to the system"),
        ("//var//log/", "belongs to the system"),
        ("/srv/../etc", "belongs to the system"),
        ("cache", "not an absolute path"),
        ("", "not an absolute path"),
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


def test_what_a_configuration_serves_and_keeps() -> None:
    tree = tree_of(
        "http { root /srv/a; access_log off; error_log stderr; server { access_log syslog:server=b;"
        " access_log /var/log/$host.log; access_log /srv/l/a.log;"
        " location /x { alias /srv/x/; } } }"
    )
    assert places_of(tree) == (["/srv/a", "/srv/x"], ["/etc/nginx/nginx.conf", "/srv/l/a.log"])
