"""The command that gets the facts a rule lacks."""

from __future__ import annotations

import re
import shlex

from nginx_tune.audit.context import Context

_PATH = re.compile(r"(?:datasets|storage\.paths)\[(.+)\]")


def how_to_get(facts: tuple[str, ...], context: Context) -> str:
    """One command line for the host that runs nginx; paths are quoted for a shell."""
    conf = shlex.quote(context.tree.path)
    if any(fact.startswith("error_logs") for fact in facts):
        return f"nginx-tune audit {conf} --facts live (as a user who may read the error log)"
    if not all("." in fact or "[" in fact for fact in facts):
        return "make every file listed as unparsed readable and valid: nginx -t"
    paths = sorted({match[1] for fact in facts if (match := _PATH.match(fact))})
    datasets = "".join(f" --dataset {shlex.quote(path)}" for path in paths)
    return (
        f"nginx-tune inspect{datasets} -f json -o facts.json && "
        f"nginx-tune audit {conf} --facts facts.json"
    )
