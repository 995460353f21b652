"""A configuration as it stands and as a plan would have it.

Anybody may have written a plan: it is believed as far as it was worked out again from itself and
from the files on this host.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
from contextlib import suppress
from typing import NamedTuple

from nginx_tune.change.generate.host_parts import told_host_parts
from nginx_tune.change.generate.hunks import HunkError, first_difference, old_content
from nginx_tune.cli.overlaid import Overlaid
from nginx_tune.conf.tree import ConfTree, Reader, read_tree
from nginx_tune.documents.plan import Plan, PlannedFile
from nginx_tune.errors import UsageError
from nginx_tune.host.door import HostReadError
from nginx_tune.report.text import shown_path

_AGAIN = "make it again: nginx-tune plan"


class Planned(NamedTuple):
    """Both, and what the plan changes."""

    before: ConfTree
    after: ConfTree
    files: dict[str, bytes]
    """The new bytes of each file, by its path."""


def check_plan(
    plan: Plan, name: str, reader: Reader, *, may_lack_content: bool = False
) -> dict[str, str]:
    """The SHA-256 of each file of a plan that is here, by its path.

    ``may_lack_content``: a plan as a page of ``report`` holds it is taken too.
    Errors: UsageError where its contents are not those that were planned, or a hunk is not what
            they change: all that is written must be shown.
    """
    names = [plan.conf_path, plan.prefix or "", *(file.path for file in plan.files), *plan.reads]
    if not plan.conf_path:
        raise UsageError(f"{name}: it names no configuration", hint=_AGAIN)
    if any("\0" in one for one in names):
        raise UsageError(f"{name}: it names a file by a zero byte")
    for path in (one for one in names if one and not posixpath.isabs(one)):
        raise UsageError(f"{name}: {shown_path(path)}: no absolute path", hint=_AGAIN)
    try:
        told_host_parts(plan.host)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", hint=error.hint) from None
    found: dict[str, str] = {}
    real: dict[str, str] = {}
    for file in plan.files:
        first = real.setdefault(os.path.realpath(file.path), file.path)
        if first is not file.path:
            raise UsageError(
                f"{name}: {shown_path(first)} and {shown_path(file.path)} are one file", hint=_AGAIN
            )
        now = None
        with suppress(HostReadError):
            now = reader.read_bytes(file.path)
        if file.content or not may_lack_content:
            _check_file(file, name, now)
        if now is not None:
            found[file.path] = hashlib.sha256(now).hexdigest()
    return found


def _check_file(file: PlannedFile, name: str, now: bytes | None) -> None:
    """Errors: UsageError where it has not the content that was planned, or its hunks are others.

    ``now`` is the file of this host.
    """
    place = f"{name}: {shown_path(file.path)}"
    if hashlib.sha256(file.content).hexdigest() != file.sha256_after:
        if not file.content:
            raise UsageError(
                f"{place}: its content is left out, as in a page of 'report'",
                hint="take the JSON of 'nginx-tune plan' itself",
            )
        raise UsageError(f"{place}: its content is not what was planned")
    try:
        old = old_content(file)
    except HunkError as error:
        raise UsageError(f"{place}:{error.line}: {error.why}", hint=_AGAIN) from None
    if hashlib.sha256(old).hexdigest() == file.sha256_before:
        return
    if now is not None and hashlib.sha256(now).hexdigest() == file.sha256_before:
        place = f"{place}:{first_difference(now, old)}"
    raise UsageError(f"{place}: the new file changes more than the plan's hunks show", hint=_AGAIN)


def read_planned(plan: Plan, name: str, reader: Reader, *, prefix: str | None) -> Planned:
    """The configuration that a plan is about, with and without it.

    ``prefix`` is what the nginx that is meant has where the plan names none.
    Errors: UsageError where the plan is not whole, or a file has changed since it was made.
    """
    check_plan(plan, name, reader)
    files = {file.path: file.content for file in plan.files}
    before = {file.path: file.sha256_before for file in plan.files}
    for path, sha256 in (before | plan.reads).items():
        try:
            data = reader.read_bytes(path)
        except HostReadError as error:
            raise UsageError(f"{name}: {shown_path(path)}: {error.reason}") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise UsageError(
                f"{name}: {shown_path(path)} has changed since the plan was made", hint=_AGAIN
            )
    base = plan.prefix or prefix
    return Planned(
        read_tree(plan.conf_path, reader, prefix=base),
        read_tree(plan.conf_path, Overlaid(reader, files), prefix=base),
        files,
    )
