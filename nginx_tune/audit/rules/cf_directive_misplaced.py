from collections.abc import Iterator

from nginx_tune.audit.context import CONTEXT_NAMES, Context
from nginx_tune.audit.directives import known_here
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.known_directives import is_named
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Known directives in a context where no version or module allows them."""
    for kind, rows, directives in known_here(context):
        if any(row.may_stand(kind.context) for row in rows) or is_named(kind.name):
            continue
        if kind.context.startswith("stream") and not any(row.is_own for row in rows):
            continue  # third-party modules often have a twin for stream (Lua, echo, GeoIP)
        allowed = sorted({place for row in rows for place in row.contexts})
        evidence = [
            Evidence(fact="context", value=kind.context, provenance="declared"),
            Evidence(
                fact="allowed in",
                value=", ".join(CONTEXT_NAMES.get(place, place) for place in allowed),
            ),
        ]
        for directive in directives:
            yield Hit(directive, f'"{kind.name}" is not allowed in {kind.where}', evidence)


RULE = Rule(
    id="cf-directive-misplaced",
    severity="error",
    title="a directive is in a context where nginx does not allow it",
    why='nginx does not start: emerg "directive is not allowed here".',
    fix="Move it to a context that allows it.",
    sources=(
        "nginx: src/core/ngx_conf_file.c, ngx_conf_handler",
        "the command tables of nginx 1.18.0, 1.22.1, 1.26.3 and 1.30.6 and their packaged modules",
    ),
    proof="proven",
    proven_on=("1.22.1",),
    bad=Example("events {} http { worker_processes 4; }"),
    good=Example("worker_processes 4; events {} http {}"),
    check=check,
)
