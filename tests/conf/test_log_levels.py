"""Which lines no error log lets through, by the levels that hold where they would come."""

from rows import each_row

from nginx_tune.conf.logs import hidden_counts
from nginx_tune.conf.tree import parse_text

UPSTREAMS = {"upstream_failures", "upstream_timeouts", "resolver_failures"}
CRITICAL = {"descriptors_exhausted", "read_errors", "space_exhausted", "memory_exhausted"}
APP = "location /app { proxy_pass http://app; }"


def hidden(main: str, server: str, http: str = "") -> set[str]:
    tree = parse_text(f"{main} events {{ }} http {{ {http} server {{ {server} }} }}")
    return set(hidden_counts(tree)) - {"connections_reused", "spilled_to_disk"}


@each_row(
    ("main", "server", "http", "names"),
    [
        ("", APP, "", set()),
        ("error_log e.log;", APP, "", set()),
        ("error_log e.log warn;", APP, "", set()),
        ("error_log e.log debug_http;", APP, "", set()),
        ("error_log e.log crit;", APP, "", UPSTREAMS),
        ("error_log e.log crit;", "root /a;", "", set()),
        ("error_log e.log crit;", f"error_log f.log; {APP}", "", set()),
        ("error_log e.log crit;", APP, "error_log f.log;", set()),
        ("error_log e.log crit; error_log f.log;", APP, "", set()),
        ("", "location /app { error_log f.log alert; proxy_pass http://a; }", "",
         UPSTREAMS | {"ports_exhausted"} | CRITICAL),
        ("", f"location /a {{ error_log f.log crit; }} {APP}", "", set()),
        ("error_log syslog:server=unix:/dev/log;", "root /a;", "",
         {"connections_exhausted", "operations_too_slow", "workers_crashed"} | CRITICAL),
        ("error_log syslog:server=unix:/dev/log; error_log e.log;", APP, "", set()),
        ("error_log e.log alert;", "root /a;", "", CRITICAL),
        ("error_log e.log alert;", "root /a;", "limit_req_zone $uri zone=a:1m rate=1r/s;",
         {"zones_exhausted"} | CRITICAL),
        ("error_log e.log crit;", "root /a;", "limit_req_zone $uri zone=a:1m rate=1r/s;", set()),
        ("error_log e.log crit;", "aio threads; root /a;", "", {"pool_overflow"}),
        ("error_log e.log crit;", "limit_req zone=a; root /a;", "", {"refused_by_limit"}),
        ("error_log e.log crit;", "root /a;", "limit_conn a 3;", {"refused_by_limit"}),
        ("", "limit_req zone=a; limit_req_log_level notice;", "", {"refused_by_limit"}),
        ("error_log e.log info;", "limit_req zone=a; limit_req_log_level notice;", "", set()),
        ("", "limit_conn a 3; limit_req_log_level notice;", "", set()),
    ],
)  # fmt: skip
def test_what_is_hidden(main: str, server: str, http: str, names: set[str]) -> None:
    assert hidden(main, server, http) == names


def test_sessions_of_stream_are_looked_at_too() -> None:
    text = "events {{ }} stream {{ server {{ listen 1; {} proxy_pass a:1; }} }}"
    assert set(hidden_counts(parse_text(text.format("error_log e.log crit;")))) >= UPSTREAMS
    assert not UPSTREAMS & set(hidden_counts(parse_text(text.format(""))))


def test_the_reason_says_where_and_what_to_write() -> None:
    found = hidden_counts(parse_text(f"\nerror_log e crit; http {{ server {{ {APP} }} }}"))
    assert found["upstream_failures"] == (
        "error_log at nginx.conf:2 has level crit, which hides lines of level error: set level "
        "error there to count them"
    )
    bare = hidden_counts(parse_text("http { server { } }"))
    assert set(bare) == {"connections_reused", "spilled_to_disk"}
    assert bare["connections_reused"].startswith("without error_log the level is error")
