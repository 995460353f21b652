"""A configuration as it stands and as a plan would have it."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from nginx_tune.audit_input.overlaid import Overlaid
from nginx_tune.conf.tree import ConfTree, Reader, read_tree
from nginx_tune.documents.plan import Plan
from nginx_tune.errors import NginxTuneError, UsageError


class Planned(NamedTuple):
    """Both, and what the plan changes."""

    before: ConfTree
    after: ConfTree
    files: dict[str, bytes]
    """The new bytes of each file, by its path."""


def check_content(plan: Plan, name: str) -> dict[str, bytes]:
    """The new bytes of each file of a plan.

    Errors: UsageError where they are not those that were planned.
    """
    names = [plan.conf_path, plan.prefix or "", *(file.path for file in plan.files), *plan.reads]
    if not plan.conf_path:
        raise UsageError(
            f"{name}: it names no configuration", hint="make it again: nginx-tune plan"
        )
    if any("\0" in one for one in names):
        raise UsageError(f"{name}: it names a file by a zero byte")
    for file in plan.files:
        if hashlib.sha256(file.content).hexdigest() != file.sha256_after:
            if not file.content:
                raise UsageError(
                    f"{name}: {file.path}: its content is left out, as in a page of 'report'",
                    hint="take the JSON of 'nginx-tune plan' itself",
                )
            raise UsageError(f"{name}: {file.path}: its content is not what was planned")
    return {file.path: file.content for file in plan.files}


def read_planned(plan: Plan, name: str, reader: Reader, *, prefix: str | None) -> Planned:
    """The configuration that a plan is about, with and without it.

    ``prefix`` is what the nginx that is meant has where the plan names none.
    Errors: UsageError where the plan is not whole, or a file has changed since it was made.
    """
    files = check_content(plan, name)
    before = {file.path: file.sha256_before for file in plan.files}
    for path, sha256 in (before | plan.reads).items():
        try:
            data = reader.read_bytes(path)
        except NginxTuneError as error:
            raise UsageError(f"{name}: {error.message}") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise UsageError(
                f"{name}: {path} has changed since the plan was made",
                hint="make it again: nginx-tune plan",
            )
    base = plan.prefix or prefix
    return Planned(
        read_tree(plan.conf_path, reader, prefix=base),
        read_tree(plan.conf_path, Overlaid(reader, files), prefix=base),
        files,
    )
