"""Well-known mistakes, one to a file: found by a rule, or out of reach for the reason it names.

The head of each file says which rule is expected (``expects``), or why none can (``out of
reach``), where the mistake is spoken of (``source``), what of the host it needs (``host``), and
whether nginx itself refuses it (``nginx: refuses it``).
"""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rows import each_row
from scratch_nginx import NGINX

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import read_tree
from nginx_tune.documents.facts import Facts
from nginx_tune.host.live import LiveHost

FILES = sorted((Path(__file__).parent / "mistakes").glob("*.conf"))
EACH = each_row("path", FILES, ids=lambda path: path.stem)
_HEAD = re.compile(r"^\ufeff?# (expects|out of reach|source|host|nginx): (.*)$", re.MULTILINE)


_READ: dict[str, Any] = {
    "cpus": int, "version": str, "memory_limit_mib": int, "flags": lambda text: (text,),
}  # fmt: skip


def _head(path: Path) -> dict[str, str]:
    return {match[1]: match[2] for match in _HEAD.finditer(path.read_text())}


def _host(head: dict[str, str]) -> Facts | None:
    if "host" not in head:
        return None
    given: dict[str, Any] = {}
    for word in head["host"].split():
        name, _, value = word.partition("=")
        given[name] = _READ[name](value)
    return linux(**given)


@EACH
def test_a_mistake_is_found_or_named_as_out_of_reach(path: Path) -> None:
    head = _head(path)
    found = {one.rule for one in audit(read_tree(str(path), LiveHost()), _host(head)).findings}
    if "expects" in head:
        assert head["expects"] in {rule.id for rule in ALL}
        assert head["expects"] in found
    else:
        assert head["out of reach"]
        assert not any(rule.startswith("cf-") for rule in found) or "nginx" in head


@pytest.mark.needs("nginx", "root")
def test_nginx_refuses_just_those_that_say_so(tmp_path: Path) -> None:
    """What nginx accepts is what nobody else tells."""
    build = subprocess.run([NGINX, "-V"], capture_output=True, text=True, check=True).stderr
    wrong = []
    for path in FILES:
        host = _host(_head(path))
        if host is not None and any(flag not in build for flag in host.nginx.flags):
            continue  # it speaks of another build
        conf = tmp_path / "nginx.conf"
        conf.write_bytes(path.read_bytes())
        script = (
            "for d in /var/log/nginx /var/cache /var/lib/nginx /run; do mount -t tmpfs none $d; "
            f"done; {NGINX} -t -c {conf}"
        )
        command = ["unshare", "--net", "--mount", "sh", "-c", script]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        if (said.returncode != 0) is not ("nginx" in _head(path)):
            wrong.append((path.stem, said.stderr))
    assert wrong == []
