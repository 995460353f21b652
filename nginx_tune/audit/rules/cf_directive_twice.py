from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import named_twice, repeated
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Directives that may appear once in a block, or once per name, and appear twice."""
    if context.tree.is_template:
        return
    for second, name, first in named_twice(context):
        yield Hit(
            second, f"{name} is already defined at {first.file}:{first.line}", [written(first)]
        )
    for second, first in repeated(context):
        yield Hit(
            second,
            f'"{second.name}" is already set in this block, at {first.file}:{first.line}',
            [written(first)],
        )


RULE = Rule(
    id="cf-directive-twice",
    severity="error",
    title="a directive appears twice in one block",
    why='nginx does not start: emerg "directive is duplicate" or "is already declared". Often one '
    "of the two comes from an included file.",
    fix="Remove one of them; an inner block may set its own.",
    sources=(
        "nginx: src/core/ngx_conf_file.c, ngx_conf_set_flag_slot and its kin",
        "the command tables of nginx 1.18.0, 1.22.1, 1.26.3 and 1.30.6",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example("events {} http { sendfile on; sendfile off; }"),
    good=Example("events {} http { sendfile on; server { sendfile off; } }"),
    check=check,
)
