from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import parameter


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """``disable_symlinks`` that checks every part of a path."""
    if "disable_symlinks" not in context.names:
        return
    lines: dict[Directive, str] = {}
    for served in context.served:
        line = served.scope.effective("disable_symlinks")
        if line is not None and line.value in {"on", "if_not_owner"}:
            lines.setdefault(line, served.path)
    for line, path in lines.items():
        if parameter(line.args, "from") is None:
            yield Hit(
                line,
                f"every directory in the path of a file under {path} is opened for each request",
                [written(line)],
            )


_CONF = "events { } http { server { location / { root /srv/www; disable_symlinks %s; } } }"

RULE = Rule(
    id="io-symlink-check",
    severity="info",
    title="disable_symlinks checks the whole path",
    why="nginx opens each component of the path separately, in the event loop: a file six "
    "directories deep costs seven calls instead of one.",
    fix="Add from=$document_root if you trust the owners of the directories above it.",
    sources=("https://nginx.org/en/docs/http/ngx_http_core_module.html#disable_symlinks",),
    proof="source-only",
    bad=Example(_CONF % "if_not_owner"),
    good=Example(_CONF % "if_not_owner from=$document_root"),
    check=check,
)
