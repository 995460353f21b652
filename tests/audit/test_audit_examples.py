"""The rules' examples, held against one another and against the real nginx."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from needs import lacks
from nginx_versions import SERIES, Nginx, find_nginx

from nginx_tune.audit.context import parse_version
from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import Rule
from nginx_tune.conf.tree import parse_text

RULES = pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)

EMPTY = ("/srv", "/mnt", "/var/cache", "/var/log", "/var/lib", "/run")
"""What a configuration test may write to, hidden behind file systems in memory."""


@RULES
def test_what_a_rule_asks_for_calls_no_other_rule(rule: Rule) -> None:
    before = {one.rule for one in audit(parse_text(rule.bad.conf), rule.bad.facts).findings}
    after = {one.rule for one in audit(parse_text(rule.good.conf), rule.good.facts).findings}
    assert after < before


def _is_in_window(rule: Rule, nginx: Nginx) -> bool:
    since, until = parse_version(rule.since or "0"), parse_version(rule.until or "999")
    return since is not None and until is not None and since <= nginx.number < until


def refusal(conf: Path, nginx: Nginx) -> str:
    """What nginx -t has against a file, in walls of its own: it binds ports and makes files."""
    paths = re.findall(r"/(?:srv|mnt|var)/[\w./-]+", conf.read_text())
    parents = {str(Path(path).parent) for path in paths} | {"/var/log/nginx", "/var/lib/nginx"}
    script = [f"mount -t tmpfs none {path}" for path in EMPTY]
    script.append(shlex.join(["mkdir", "-p", *sorted(parents)]))
    script.append(shlex.join([nginx.program, "-t", "-c", str(conf), "-g", "pid /run/x.pid;"]))
    command = ["unshare", "--net", "--mount", "sh", "-ec", "; ".join(script)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return said.stderr if said.returncode else ""


@pytest.mark.needs("root", "nginx")
@RULES
def test_nginx_takes_the_good_example(
    rule: Rule, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    flags = set(rule.good.facts.nginx.flags) if rule.good.facts is not None else set()
    tls = f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};"
    conf = tmp_path / "nginx.conf"
    conf.write_text(re.sub(r"(?<![\w.])http\s*\{", f"http {{ {tls} ", rule.good.conf, count=1))
    refusals = []
    for series in ("1.22", SERIES[-1]):  # the older one first: it needs no download
        nginx = find_nginx(series)
        if flags & {"--with-file-aio"} and "--with-file-aio" not in nginx.build:
            lacks("file-aio", "Debian builds nginx without it")
        if _is_in_window(rule, nginx):
            refusals.append(refusal(conf, nginx))
            if not refusals[-1]:
                return
    if not refusals:
        lacks("older-nginx", "the window is older than what the examples are tried on")
    raise AssertionError("\n".join(refusals))
