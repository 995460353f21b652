"""``nginx-tune generate``."""

import dataclasses
import difflib
import shlex
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import click
from msgspec.structs import replace

from nginx_tune.change.generate.features import FEATURES, beside, feature_form
from nginx_tune.change.generate.nginx_conf import emit_decided, kept_defaults
from nginx_tune.change.generate.plan_files import host_parts
from nginx_tune.change.generate.writing import FileProvenance
from nginx_tune.cli.deciding import Inputs, deciding_options, read_inputs, tell_new_site
from nginx_tune.cli.described import INPUTS, typed_words
from nginx_tune.cli.inputs import read_bytes
from nginx_tune.cli.second_reading import check_generated
from nginx_tune.decide.answer import build_of
from nginx_tune.decide.cache_layout import files_there
from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import AccessLog, Facts, Nginx
from nginx_tune.documents.plan import HostPart
from nginx_tune.errors import ConfigurationError, ExitStatus, UsageError
from nginx_tune.report.plan import render_generated_markdown
from nginx_tune.report.terminal.output import (
    RESULT_FILE,
    file_of,
    output_options,
    tell_written,
    write_file,
    write_result,
)
from nginx_tune.report.terminal.saying import say
from nginx_tune.report.text import commandless, plain

_STATUS_MODULE = "--with-http_stub_status_module"


@click.command()
@deciding_options
@click.option(
    "--with",
    "features",
    multiple=True,
    metavar="FEATURE",
    help=f"A further feature of the site; may repeat: {', '.join(map(feature_form, FEATURES))}.",
)
@click.option(
    "--check",
    "check_path",
    metavar="FILE",
    help="Compare FILE with the result, without comments; exit 1 with a diff if they differ.",
)
@click.option(
    "--save-facts", type=RESULT_FILE, metavar="FILE", help="Write the facts that were used to FILE."
)
@output_options("nginx", "json", "md")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    check_path: str | None,
    save_facts: str | None,
    formats: tuple[str, ...],
    output: str | None,
    **named: Any,
) -> ExitStatus:
    """An nginx.conf with a comment on every tuned line that gives its reason.

    The same inputs give the same bytes. With --nginx BIN, the result is written only if that
    nginx's -t accepts it in the sandbox. If -o names a directory, changes to the host (kernel
    settings, limits of the unit, read-ahead of disks) are written below host/ in it, each file
    with the commands that undo it. -f md has all of this in one file; -f json gives the decisions
    instead.
    """
    if check_path is not None and output is not None:
        raise UsageError("--check writes nothing: give it or -o")
    tell_new_site(ctx, named)
    inputs = read_inputs(ctx, **named)
    inputs = dataclasses.replace(inputs, facts=_with_logs(inputs))
    text = _emit(inputs, named)
    inputs.tell()
    for path in inputs.site.cache_dirs if inputs.kind == "cache" else ():
        if told := files_there(inputs.facts, inputs.site, path):
            say(told)
    roots = len(inputs.site.roots) if inputs.kind in {"static", "media"} else 0
    if roots > 1 and not inputs.site.root_prefixes:
        say(
            f"nginx searches {roots} roots in turn: a request for a file in the last one needs "
            f"{roots} look-ups",
            "[site] root_prefixes gives each root its own URLs",
        )
    if named["nginx_binary"] is not None:
        _check_accepted(named["nginx_binary"], text)
    else:
        check_generated(text, partial(_emit, inputs, named))
    if save_facts is not None:
        write_file(Path(save_facts), encode(inputs.facts), mode=0o600)
    if check_path is not None:
        older = dataclasses.replace(inputs, site=replace(inputs.site, mime_types=None))
        return _check(check_path, text, _emit(older, named))
    host = host_parts(inputs.decisions.decisions, inputs.facts)
    if output is not None and Path(output).is_dir():
        if formats in ((), ("nginx",)):
            _write_host(Path(output), host)
        output = str(Path(output) / _NAMES.get("".join(formats), "nginx.conf"))
    write_result(
        {
            "nginx": text.encode,
            "json": lambda: encode(inputs.decisions),
            "md": lambda: render_generated_markdown(text, host, kept_defaults(inputs.decisions)),
        },
        formats,
        output,
    )
    made = file_of("nginx", formats or ("nginx",), output)
    proof = f"nginx-tune validate {shlex.quote(made)}" if made else ""
    tell_written("the result", formats, output, proof)
    return ExitStatus.OK


def _with_logs(inputs: Inputs) -> Facts:
    """The facts, with the access logs that were looked at: they give the same lines again."""
    if not inputs.is_live:
        return inputs.facts
    plain, piped = inputs.site.plain_logs, inputs.site.piped_logs
    logs = [AccessLog(path=path, is_file=path in plain) for path in [*plain, *piped]]
    return replace(inputs.facts, access_logs=[log for log in logs if log.path.startswith("/")])


_NAMES = {"json": "decisions.json", "md": "nginx.md"}
"""Names of files in a directory, by format."""


def _write_host(output: Path, parts: Sequence[HostPart]) -> None:
    """Write the files for the host below ``host`` in a directory, at their paths on the host.

    Errors: UsageError if a directory on the way is a link, which may lead anywhere.
    """
    for part in parts:
        folder = output / "host"
        for name in ("", *PurePosixPath(part.path).parent.parts[1:]):
            folder /= name
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                raise UsageError(f"{folder}: cannot write: {error.strerror}") from None
            if folder.is_symlink():
                raise UsageError(f"{folder}: a link, but it must be a directory")
        write_file(output / "host" / part.path.lstrip("/"), part.content.encode())


def _check_accepted(binary: str, text: str) -> None:
    """Test a configuration with ``nginx -t`` of the target's nginx, in the sandbox.

    Outside of the sandbox, ``nginx -t`` as root would give existing caches and temporary
    directories, which a running nginx may use, to the user that the text names.
    Errors: ConfigurationError with nginx's message.
    """
    from nginx_tune.cli.audit_subject import test_tree  # noqa: PLC0415  # only with this option
    from nginx_tune.conf.tree import read_tree  # noqa: PLC0415
    from nginx_tune.host.live import LiveHost  # noqa: PLC0415

    host = LiveHost()
    with tempfile.TemporaryDirectory(prefix="nginx-tune-") as folder:
        path = Path(folder) / "nginx.conf"
        path.write_text(text, encoding="utf-8")
        tried, _ = test_tree(host, read_tree(str(path), host), binary, prefix=None, replaced={})
    if tried.accepted:
        return
    lines = [line.replace(f"{folder}/", "") for line in tried.messages if line.strip()]
    worst = [line for line in lines if "[emerg]" in line] or lines or ["no message"]
    said = worst[0].removeprefix("nginx: ").strip()
    hint = f"{tried.next_step}; nothing was written" if tried.next_step else "nothing was written"
    raise ConfigurationError(f"{binary} -t rejects it: {said}", hint=hint)


def _emit(inputs: Inputs, named: dict[str, Any]) -> str:
    return emit_decided(
        inputs.decisions,
        inputs.site,
        provenance=FileProvenance(
            kind=inputs.kind,
            facts=inputs.facts,
            workload=inputs.given_workload,
            site=inputs.given_site,
            roots=inputs.roots,
            cache_dirs=inputs.cache_dirs,
            features=named["features"],
            described=_description(inputs, named),
        ),
        beside=beside(inputs.site, inputs.kind, inputs.facts, inputs.given_workload),
        status_page=_has_status_page(inputs.facts.nginx),
    )


def _description(inputs: Inputs, named: dict[str, Any]) -> list[str]:
    """The options of this call that describe the host; empty if its facts were read."""
    if not inputs.facts.declared or named["facts_path"] is not None:
        return []
    return typed_words(click.get_current_context(), (*INPUTS, "features"))


def _has_status_page(nginx: Nginx) -> bool:
    """True for a build that has ``stub_status`` without an argument (since 1.7.5)."""
    return _STATUS_MODULE in nginx.flags and build_of(nginx).at_least(1, 7, 5)


def _check(path: str, text: str, older: str) -> ExitStatus:
    """Compare an existing file with the generated ``text``, as nginx reads them.

    Comments are ignored: their fingerprints and figures always differ on a running host. ``older``
    is the text as older versions wrote it, with all media types instead of an include.
    """
    found = read_bytes(path)
    if found == text.encode():
        return ExitStatus.OK
    old = found.decode(errors="replace")
    if _words(old) in (_words(text), _words(older)):
        return ExitStatus.OK
    diff = difflib.unified_diff(
        old.splitlines(keepends=True),
        text.splitlines(keepends=True),
        fromfile=path,
        tofile="what the inputs give",
    )
    shown = commandless("".join(f"{plain(line.rstrip())}\n" for line in diff))
    write_result({"diff": lambda: shown.encode(errors="backslashreplace")}, (), None)
    return ExitStatus.FOUND


def _words(text: str) -> list[tuple[str, ...]] | None:
    """The words of a configuration as nginx reads them; None if it rejects it."""
    from nginx_tune.conf.parser import ParseFault, read_tokens  # noqa: PLC0415  # rarely

    try:
        return [token[:3] for token in read_tokens(text)]
    except ParseFault:
        return None
