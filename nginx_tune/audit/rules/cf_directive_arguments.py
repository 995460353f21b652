from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import known_here
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.known_directives import is_named
from nginx_tune.documents.decisions import Evidence


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Known directives with too many or too few arguments, or with or without a block.

    Directives of third-party modules are not checked: they differ between releases, and several
    modules may define the same name. ``auth_jwt_key`` takes one argument in the module that Debian
    packages, and two in another one.
    """
    for kind, candidates, directives in known_here(context):
        rows = [row for row in candidates if row.may_stand(kind.context)]
        if not any(row.is_own for row in rows) or is_named(kind.name):
            continue
        if all(row.is_block != kind.is_block for row in rows):
            expected = 'a block "{ … }"' if rows[0].is_block else 'no block and ends with ";"'
        elif not any(row.takes(kind.arguments) for row in rows):
            expected = _counts(" or ".join(sorted({row.arguments for row in rows})))
        else:
            continue
        evidence = [Evidence(fact="arguments", value=kind.arguments, provenance="declared")]
        for directive in directives:
            yield Hit(directive, f'"{kind.name}" takes {expected}', evidence)


def _counts(text: str) -> str:
    words = text.replace("flag", "on or off").replace("1+", "1 or more").replace("2+", "2 or more")
    return f"{words.replace(',', ', ')} argument{'' if text in {'1', 'flag'} else 's'}"


RULE = Rule(
    id="cf-directive-arguments",
    severity="error",
    title="a directive has the wrong number of arguments",
    why='nginx does not start: emerg "invalid number of arguments", or the directive "has no '
    'opening "{"" or is "not terminated by ";"".',
    fix="Correct the arguments; the usual cause is a missing semicolon.",
    sources=(
        "nginx: src/core/ngx_conf_file.c, ngx_conf_handler",
        "the command tables of nginx 1.18.0, 1.22.1, 1.26.3 and 1.30.6 and their packaged modules",
    ),
    proof="proven",
    proven_on=("1.22.1",),
    bad=Example("events {} http { sendfile on\ntcp_nopush on; }"),
    good=Example("events {} http { sendfile on;\ntcp_nopush on; }"),
    check=check,
)
