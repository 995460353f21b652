from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import not_in_version
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.known_directives import history_of, is_named
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Directives that this version of nginx is too old or too new for."""
    version = context.version
    for rows, directives in not_in_version(context):
        name = directives[0].name
        if rows and is_named(name) and context.flags is None:
            yield MissingFacts(("nginx.flags",))  # a module that is built in may have it
            continue
        if version is None:
            yield MissingFacts(("nginx.nginx_version",))
            return
        have = sorted({row.first for row in rows} | {row.last for row in rows})
        evidence = [
            Evidence(fact="nginx.nginx_version", value=_dotted(version)),
            Evidence(
                fact="seen in nginx", value=", ".join(map(_dotted, have)) or _release_text(name)
            ),
        ]
        for directive in directives:
            yield Hit(
                directive,
                f'nginx {_dotted(version)} has no directive "{name}"',
                evidence,
                fix=_SSL if name == "ssl" and directive.value.lower() == "on" else "",
            )


def _release_text(name: str) -> str:
    since, gone = history_of(name)
    return f"{_dotted(since or (1, 4, 0))} and later" + (
        f", before {_dotted(gone)}" if gone else ""
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


_SSL = "Remove it, and write ssl on the listen lines of the server: listen 443 ssl;"

RULE = Rule(
    id="cf-directive-version",
    severity="error",
    title="a directive that this version of nginx does not have",
    why='nginx does not start: emerg "unknown directive". The commands of nginx 1.18, 1.22, 1.26 '
    "and 1.30 are known; for a version between two of these, a directive is reported if both lack "
    "it.",
    fix="Remove the directive, or install a version that has it.",
    sources=(
        "nginx: src/core/ngx_conf_file.c, ngx_conf_handler",
        "the command tables of nginx 1.18.0, 1.22.1, 1.26.3 and 1.30.6 and their packaged modules",
    ),
    proof="proven",
    proven_on=("1.22.1",),
    bad=Example("events {} http { http2 on; }", linux(version="1.22.1")),
    good=Example("events {} http { http2 on; }", linux(version="1.26.3")),
    check=check,
)
