"""The rules' examples, held against one another and against the real nginx."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from needs import lacks
from nginx_versions import NEWEST, Nginx, find_nginx, need, present
from rows import each_row

from nginx_tune.audit.context import parse_version
from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Rule
from nginx_tune.conf.tree import parse_text

RULES = each_row("rule", ALL, ids=lambda rule: rule.id)

EMPTY = ("/srv", "/mnt", "/var/cache", "/var/log", "/var/lib", "/run")
"""What a configuration test may write to, hidden behind file systems in memory."""


@RULES
def test_what_a_rule_asks_for_calls_no_other_rule(rule: Rule) -> None:
    before = {one.rule for one in audit(parse_text(rule.bad.conf), rule.bad.facts).findings}
    after = {one.rule for one in audit(parse_text(rule.good.conf), rule.good.facts).findings}
    assert after < before


def refusal(conf: Path, nginx: Nginx) -> str:
    """What nginx -t has against a file, in a sandbox of its own: it binds ports and makes files."""
    paths = re.findall(r"/(?:srv|mnt|var)/[\w./-]+", conf.read_text())
    parents = {str(Path(path).parent) for path in paths} | {"/var/log/nginx", "/var/lib/nginx"}
    script = [f"mount -t tmpfs none {path}" for path in EMPTY]
    script.append(shlex.join(["mkdir", "-p", *sorted(parents)]))
    script.append(shlex.join([nginx.program, "-t", "-c", str(conf)]))
    command = ["unshare", "--net", "--mount", "sh", "-ec", "; ".join(script)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return said.stderr if said.returncode else ""


def _takers(rule: Rule) -> list[Nginx]:
    """The versions here that the good example is for."""
    since, until = parse_version(rule.since or "0"), parse_version(rule.until or "999")
    assert since is not None
    assert until is not None
    flags = rule.good.facts.nginx.flags if rule.good.facts is not None else ()
    here = map(find_nginx, sorted(present(), key=lambda series: (series != "1.22", series)))
    return [
        nginx
        for nginx in here
        if since <= nginx.number < until
        and ("--with-file-aio" not in flags or "--with-file-aio" in nginx.build)
    ]


@pytest.mark.needs("root", "nginx")
@each_row("rule", lambda: filter(_takers, ALL), ids=lambda rule: rule.id)
def test_nginx_takes_the_good_example(
    rule: Rule, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    tls = f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};"
    conf = tmp_path / "nginx.conf"
    conf.write_text(re.sub(r"(?<![\w.])http\s*\{", f"http {{ {tls} ", rule.good.conf, count=1))
    refusals = (refusal(conf, nginx) for nginx in _takers(rule))
    first = next(refusals)
    is_taken = not first or "" in refusals
    if not is_taken and NEWEST not in present():
        lacks(need(NEWEST), f"{rule.id} may be for it")
    assert is_taken, first


@pytest.mark.needs("nginx")
def test_few_good_examples_are_tried_on_no_nginx() -> None:
    untried = [rule.id for rule in ALL if not _takers(rule)]
    assert len(untried) < len(ALL) / 10
    if untried:
        lacks("older-nginx", f"{', '.join(untried)} are for other versions or builds")
