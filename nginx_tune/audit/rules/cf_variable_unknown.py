from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import judges_names, stray_dollars, unknown_variables
from nginx_tune.audit.hit import Hit, MissingFacts, hit_at
from nginx_tune.audit.rule import Example, Rule


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Variables that nothing defines."""
    if not judges_names(context):
        return
    for reference in unknown_variables(context):
        yield hit_at(reference.place, f'the variable "${reference.name}" is not defined')
    for line in stray_dollars(context):
        yield hit_at(line, "a dollar sign is not followed by a variable name")


RULE = Rule(
    id="cf-variable-unknown",
    severity="error",
    title="a variable that is not defined",
    why='nginx does not start: emerg "unknown variable" or "invalid variable name". Neither nginx '
    "1.18 to 1.30 nor a set, map, geo, split_clients or named group of this configuration defines "
    "it.",
    fix="Correct the name, or define the variable. For a literal dollar sign use geo $dollar { "
    "default $; } and $dollar.",
    sources=(
        "nginx: src/http/ngx_http_variables.c, ngx_http_variables_init_vars",
        "the tables of variables of nginx 1.18.0, 1.22.1, 1.26.3 and 1.30.6",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    whole_tree=True,
    about="Not reported where a third-party directive is used, whose module may define variables, "
    "nor for names in capitals, which templates fill in.",
    bad=Example("events {} http { server { listen 80; return 301 https://$hots$uri; } }"),
    good=Example("events {} http { server { listen 80; return 301 https://$host$uri; } }"),
    check=check,
)
