from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import value_faults
from nginx_tune.audit.hit import Hit, MissingFacts, hit_at
from nginx_tune.audit.rule import Example, Rule


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Values that nginx's own parsers reject."""
    for fault in value_faults(context):
        yield hit_at(fault.place, f'"{fault.place.name}" takes {fault.accepted}')


RULE = Rule(
    id="cf-value-invalid",
    severity="error",
    title="a value that nginx rejects",
    why='nginx does not start: emerg "invalid value". A size takes the suffixes k and m (g only '
    "for file sizes); a time ms, s, m, h, d, w, M and y, from the largest down; a switch on or "
    "off.",
    fix="Write the value in the form that the directive takes.",
    sources=(
        "nginx: src/core/ngx_conf_file.c, ngx_conf_set_flag_slot and its kin",
        "nginx: src/core/ngx_parse.c",
        "the command tables of nginx 1.18.0, 1.22.1, 1.26.3 and 1.30.6",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Of the directives that parse their own arguments, the frequent ones are checked (allow "
    "and deny, expires, zones, server in an upstream, and others). Values with a variable or a "
    "template placeholder ($, {{) are not. If the version is not known, a value that any version "
    "accepts is accepted.",
    bad=Example("events {} http { client_body_timeout 60sec; }"),
    good=Example("events {} http { client_body_timeout 60s; }"),
    check=check,
)
