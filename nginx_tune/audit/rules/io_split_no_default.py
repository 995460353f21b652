from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, counted, written
from nginx_tune.audit.paths import CACHE_DIRECTIVES, splits, uncovered_percent
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.scopes import http_directives
from nginx_tune.conf.variables import variables_of

_DIRECTIVES = frozenset({
    "root", "alias", "proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass",
    *CACHE_DIRECTIVES,
})  # fmt: skip
"""Directives that must not have an empty value; io-pool-var-unresolved covers thread pools."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``split_clients`` without a value for some keys where one is needed."""
    for split in splits(context):
        percent = uncovered_percent(split)
        if percent <= 0:
            continue
        for line in http_directives(context.tree):
            if line.name in _DIRECTIVES and split.variable in variables_of(" ".join(line.args)):
                yield Hit(
                    split.place,
                    f"${split.variable} is empty for {percent:g} % of the keys, and "
                    f'"{line}" depends on it',
                    [counted("keys without a value", percent, "%"), written(line)],
                )
                break


_CONF = """
events { }
http {
    split_clients $uri $disk { 33.3%% 1; 33.3%% 2; %s 3; }
    server { location / { root /mnt/disk$disk; } }
}
"""

RULE = Rule(
    id="io-split-no-default",
    severity="error",
    title="split_clients has no value for some keys",
    why="Keys that no part covers get an empty value, and their requests go to a path, cache or "
    "upstream that does not exist. The same requests fail every time, because a key always falls "
    "into the same part.",
    fix='Write the last part as "*".',
    sources=(
        "https://nginx.org/en/docs/http/ngx_http_split_clients_module.html",
        "nginx: src/http/modules/ngx_http_split_clients_module.c",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    by_absence=True,
    within=frozenset({"split_clients"}),
    bad=Example(_CONF % "33.3%"),
    good=Example(_CONF % "*"),
    check=check,
)
