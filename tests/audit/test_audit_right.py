"""Configurations that are right: the rules about proxies, caches, TLS, logs and clients are silent.

Each file in ``right`` comes close to what some of them speak of.
"""

from pathlib import Path

from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import read_tree
from nginx_tune.host.live import LiveHost

FILES = sorted((Path(__file__).parent / "right").glob("*.conf"))
AREAS = ("cf-", "up-", "px-", "ca-", "tls-", "log-", "gz-", "cn-")
RULES = [rule for rule in ALL if rule.id.startswith(AREAS) and rule.id != "cf-directive-version"]
FLAGS = ("--with-threads", "--with-debug", "--with-http_gzip_static_module")


@each_row("version", ["1.18.0", "1.22.1", "1.26.3", "1.30.6"])
@each_row("path", FILES, ids=lambda path: path.stem)
def test_nothing_is_found(path: Path, version: str) -> None:
    tree = read_tree(str(path), LiveHost())
    assert tree.complete
    found = audit(tree, linux(version=version, flags=FLAGS), RULES)
    assert [(one.rule, one.line, one.message) for one in found.findings] == []
