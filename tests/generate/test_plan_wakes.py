"""No fix of the audit wakes a keepalive that the decisions refuse."""

from pathlib import Path

from rows import each_row
from test_plan_changes import contents, facts_of
from test_plan_fixes import with_fixes, write

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.change.generate.changes import Changes

RULE = "up-keepalive-before-lb"
CONF = """\
events {{}}
http {{
    upstream free {{ keepalive 3; least_conn; server 10.0.0.5; server 10.0.0.6; }}
    upstream app {{ keepalive 4; {method}; server 10.0.0.1; server 10.0.0.2; }}
    server {{
        listen 80;
        location / {{ proxy_pass {to}; }}
        location /free {{ proxy_pass http://free; }}
        {more}
    }}
}}
"""
SAME = "location /b { proxy_pass http://app; }"
REFUSED = [
    ("location /b { proxy_bind $remote_addr; proxy_pass http://app; }", "proxy_bind"),
    ("location /b { proxy_bind 10.0.0.9; proxy_pass http://app; }", "proxy_bind 10.0.0.9"),
    ("location /b { proxy_pass https://app; }", "uses another protocol"),
    ("location /b { grpc_pass grpc://app; }", "uses another protocol"),
    ("location /b { fastcgi_pass app; }", "fastcgi_pass app"),
    ("location /b { proxy_bind $remote_addr; proxy_pass http://ap$arg_to; }", "proxy_bind"),
]


def made(folder: Path, more: str, *, method: str = "ip_hash", to: str = "http://app") -> Changes:
    tree = write(folder, {"nginx.conf": CONF.format(more=more, method=method, to=to)})
    facts = facts_of("raid10-4hdd")
    changes, _ = with_fixes(tree, facts, [rule for rule in ALL if rule.id == RULE])
    return changes


def works(changes: Changes, group: str, method: str) -> bool:
    """Whether the keepalive of a group stands behind its method."""
    [text] = [one.decode() for one in contents(changes).values()]
    block = text.partition(f"upstream {group} {{")[2].partition("}")[0]
    return block.index("keepalive") > block.index(method)


@each_row(("more", "why"), REFUSED)
def test_a_group_that_keeps_nothing_is_not_given_its_keepalive_back(
    tmp_path: Path, more: str, why: str
) -> None:
    changes = made(tmp_path, more)
    assert not works(changes, "app", "ip_hash")
    [refusal] = [one for one in changes.refusals if one.decision == RULE]
    assert (refusal.line, "it would enable keepalive" in refusal.reason) == (4, True)
    assert why in refusal.reason


@each_row("method", ["ip_hash", "least_conn", "random two"])
def test_another_group_is_and_so_is_one_that_all_ask_alike(tmp_path: Path, method: str) -> None:
    for more in (SAME, REFUSED[0][0]):
        changes = made(tmp_path, more, method=method)
        assert works(changes, "free", "least_conn")
        is_moved = works(changes, "app", method)
        assert is_moved is (more == SAME)
        assert bool(changes.refusals) is not is_moved


@each_row(("more", "why"), REFUSED[:4])
def test_the_audit_by_itself_moves_nothing_there_either(
    tmp_path: Path, more: str, why: str
) -> None:
    tree = write(
        tmp_path, {"nginx.conf": CONF.format(more=more, method="ip_hash", to="http://app")}
    )
    found = [one for one in audit(tree, facts_of("raid10-4hdd")).findings if one.rule == RULE]
    by_line = {one.line: one for one in found}
    assert by_line[3].edits
    assert by_line[4].edits == [], why
    assert by_line[4].fix.startswith("Remove keepalive")
