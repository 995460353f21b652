"""Which places a configuration and the build write to, and what of them is shown inside."""

from __future__ import annotations

from nginx_tune.conf.tree import parse_text
from nginx_tune.experiment.target import written_files
from nginx_tune.experiment.view import plan_places, plan_view, required_directories


def test_places_are_what_the_build_and_the_configuration_write_to() -> None:
    flags = [
        "--with-threads",
        "--error-log-path=stderr",
        "--http-log-path=/var/log/nginx/access.log",
        "--pid-path=/run/nginx.pid",
        "--lock-path=/var/lock/nginx.lock",
        "--http-proxy-temp-path=/var/lib/nginx/proxy",
    ]
    written = ["/srv/logs/error.log", "syslog:server=1.2.3.4", "/logs/$host.log", "/dev/null"]
    assert plan_places(flags, written) == [
        "/run",
        "/srv/logs",
        "/var/lib/nginx",
        "/var/lock",
        "/var/log/nginx",
    ]


def test_a_cache_is_covered_and_nothing_beside_it() -> None:
    tree = parse_text(
        "events {} http { proxy_cache_path /var/cache/nginx keys_zone=small:1m; server {"
        " access_log /var/log/nginx/a.log; proxy_temp_path /var/tmp/nginx; } }"
    )
    assert plan_places([], written_files(tree)) == [
        "/run", "/var/cache/nginx", "/var/log/nginx", "/var/tmp/nginx",
    ]  # fmt: skip
    assert required_directories(written_files(tree)) == ["/var/cache", "/var/log/nginx", "/var/tmp"]


def test_a_cache_is_written_and_not_shown() -> None:
    """A place that is shown takes no writes, inside of one that does neither."""
    tree = parse_text(
        "events {} http { proxy_cache_path /srv/site/cache keys_zone=small:1m; server {"
        " access_log /srv/logs/site/a.log; location / { proxy_cache small;"
        " proxy_pass http://127.0.0.1:1; } } }",
        file="/srv/site/nginx.conf",
    )
    view = plan_view([tree], [], None, directory="/")
    assert "/srv/site" in view.shown
    assert "/srv/site/cache" not in view.shown
    assert {"/srv/site", "/srv/site/cache", "/srv/logs/site"} <= set(view.written)


def test_the_threads_of_all_pools_are_counted() -> None:
    for pools, threads in (
        ("", 0),
        ("thread_pool a threads=64; thread_pool b threads=200 max_queue=0;", 264),
        ("thread_pool a threads=many;", 0),
        ("thread_pool a threads=999999999999999999999999;", 2048),
    ):
        tree = parse_text(f"{pools} events {{ }}", file="/etc/nginx/nginx.conf")
        assert plan_view([tree], [], None, directory="/").threads == threads, pools
