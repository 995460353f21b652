"""One process serves where there is no master, whatever ``worker_processes`` says."""

from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import parse_text

CONF = "%s worker_processes 8; events { } http { server { listen 80; root /srv/www; } }"


@each_row(("line", "found"), [("master_process off;", 1), ("master_process on;", 0)])
def test_the_only_process_is_found_with_the_line_that_makes_it_one(line: str, found: int) -> None:
    rules = [one for one in ALL if one.id == "lim-workers-one"]
    said = audit(parse_text(CONF % line, file="/n.conf"), linux(cpus=8), rules).findings
    assert len(said) == found
    assert all(one.fix.startswith("Remove master_process off; then set ") for one in said)
