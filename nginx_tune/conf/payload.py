"""A configuration as crossplane's payload: what agents send, and what ``crossplane parse`` prints.

Source: crossplane 0.5, README "crossplane parse" and parser.py. Words are as written, without their
quotes; only an escaped quote inside quotes has lost its backslash; ``if`` has lost its parentheses;
a Lua block's source is its last argument. Every statement has the line of its name, so a text can
be made again whose places are the original's, though not its spaces and comments.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

import msgspec

from nginx_tune.conf.directive import Block, Directive, as_utf8
from nginx_tune.conf.dump import Dump
from nginx_tune.conf.lexer import read_tokens
from nginx_tune.conf.parser import DEEPEST
from nginx_tune.conf.tree import ConfTree
from nginx_tune.errors import UsageError

_PLAIN = re.compile(
    r"(?:\\.|\$\{[^\s;{}]*\}|[^\s;{}\"'\\#])(?:\\.|\$\{[^\s;{}]*\}|[^\s;{\\])*", re.DOTALL
)
"""A word that means the same without quotes."""
_ESCAPED_OR_QUOTE = re.compile(r'(\\.)|"', re.DOTALL)
_LUA_NAME = "_by_lua_block"
_COMMENT = "#"
_JSON_OBJECT = re.compile(rb"\s*\{\s*\"")


class Statement(msgspec.Struct, omit_defaults=True):
    """A directive, or a comment."""

    directive: str
    line: int
    args: list[str]
    includes: list[int] | None = None
    """Of an include: which of the payload's files it gave."""
    block: list[Statement] | None = None
    comment: str | None = None
    file: str | None = None
    """Only where the files were combined to one."""


class FileError(msgspec.Struct):
    """Why a file is not whole."""

    error: str
    line: int | None = None


class PayloadError(FileError, kw_only=True):
    """The same, with the file's name."""

    file: str


class PayloadFile(msgspec.Struct):
    """One file."""

    file: str
    parsed: list[Statement]
    status: str = "ok"
    errors: list[FileError] = []


class Payload(msgspec.Struct):
    """All files, the main one first."""

    config: list[PayloadFile]
    status: str = "ok"
    errors: list[PayloadError] = []


def is_payload(data: bytes) -> bool:
    """Whether data begins as a JSON object does: no configuration does, nor a template's tag."""
    return _JSON_OBJECT.match(data) is not None


def read_payload(data: bytes, name: str) -> Dump:
    """The files of a payload, as text whose lines are the original's.

    A file that crossplane could not read whole is not there. ``name`` stands in messages.
    Errors: UsageError for what is no payload, or one whose files were combined to one.
    """
    try:
        payload = msgspec.json.decode(data, type=Payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(
            f"{name}: no payload of crossplane: {error}", hint="crossplane parse nginx.conf"
        ) from None
    if not payload.config:
        raise UsageError(f"{name}: a payload without files", hint="crossplane parse nginx.conf")
    main = payload.config[0]
    if any(one.file is not None for one in main.parsed):
        raise UsageError(
            f"{name}: its files were combined to one, so no line has its place",
            hint="crossplane parse nginx.conf, without --combine",
        )
    if main.status != "ok":
        why = main.errors[0].error if main.errors else "it says not why"
        raise UsageError(f"{name}: crossplane could not parse {main.file}: {as_utf8(why)}")
    files: dict[str, bytes] = {}
    for one in payload.config:
        if one.status == "ok":
            path = posixpath.normpath(one.file)
            files.setdefault(path, _text(one).encode("utf-8", "surrogateescape"))
    return Dump(posixpath.normpath(main.file), files)


def _text(file: PayloadFile) -> str:
    parts: list[str] = []
    line = 1
    for wanted, text in _pieces(file.parsed, 0):
        gap = "\n" * (wanted - line) if wanted > line else " "
        parts += (gap, text)
        line += gap.count("\n") + text.count("\n")
    return "".join(parts).removeprefix(" ") + "\n"


def _pieces(statements: list[Statement], depth: int) -> Iterator[tuple[int, str]]:
    """What stands in which line; 0 for a brace, which stands behind what it ends."""
    if depth > DEEPEST:
        raise UsageError(f"a payload with more than {DEEPEST} nested blocks")
    for one in statements:
        if one.directive == _COMMENT and one.comment is not None:
            yield one.line, f"#{one.comment.splitlines()[0] if one.comment else ''}\n"
        elif one.block is not None:
            yield one.line, f"{_words(one)} {{"
            yield from _pieces(one.block, depth + 1)
            yield 0, "}"
        elif one.directive.endswith(_LUA_NAME) and one.args:
            head = Statement(one.directive, one.line, one.args[:-1])
            yield one.line, f"{_words(head)} {{{one.args[-1]}}}"
        else:
            yield one.line, f"{_words(one)};"


def _words(one: Statement) -> str:
    args = [_word(arg) for arg in one.args]
    if one.directive == "if" and args:
        args[0] = f"( {args[0]}" if args[0].startswith('"') else f"({args[0]}"
        args[-1] += ")"
    return " ".join([_word(one.directive), *args])


def _word(text: str) -> str:
    """A word as it can stand in a file."""
    if _PLAIN.fullmatch(text):
        return text
    inner = _ESCAPED_OR_QUOTE.sub(lambda found: found[1] or '\\"', text)
    if (len(inner) - len(inner.rstrip("\\"))) % 2:  # it would keep the quote that ends the word
        inner += "\\"
    return f'"{inner}"'


def payload_of(tree: ConfTree) -> Payload:
    """A tree as ``crossplane parse`` prints it.

    Its words end where nginx ends them, and its globs are read as nginx reads them; crossplane's
    own differ in the places that the differential test names.
    """
    order = _Order(tree)
    files = [  # the list grows: the files that a file includes follow in the order met
        PayloadFile(as_utf8(one.source.file), _statements(one.block, order)) for one in order.files
    ]
    errors = [PayloadError(error=u.reason, line=u.line, file=u.file) for u in tree.unparsed]
    for error in errors:
        reason = FileError(error.error, error.line)
        own = [one for one in files if one.file == error.file]
        for one in own:
            one.status, one.errors = "failed", [*one.errors, reason]
        if not own:
            files.append(PayloadFile(error.file, [], "failed", [reason]))
    return Payload(files, "failed" if errors else "ok", errors)


def encode_payload(tree: ConfTree) -> bytes:
    """The payload of a tree as JSON."""
    return msgspec.json.encode(payload_of(tree)) + b"\n"


class _Order:
    """The files in the order of the payload."""

    def __init__(self, tree: ConfTree) -> None:
        self._by_block = {id(one.block): one for one in tree.parsed}
        self.files = [one for one in tree.parsed if one.block is tree.main]
        self._index = {id(one.block): 0 for one in self.files}

    def index(self, block: Block) -> int:
        """The number of a file, a new one where it has none."""
        if id(block) not in self._index:
            self._index[id(block)] = len(self.files)
            self.files.append(self._by_block[id(block)])
        return self._index[id(block)]


def _statements(block: Block, order: _Order) -> list[Statement]:
    return [_statement(one, order) for one in block.directives]


def _statement(one: Directive, order: _Order) -> Statement:
    name, *args = map(as_utf8, _written(one))
    statement = Statement(name, one.line, _without_parentheses(args) if name == "if" else args)
    if name == "include":
        statement.includes = [order.index(block) for block in one.included or ()]
    if one.block is not None and not name.endswith(_LUA_NAME):
        statement.block = _statements(one.block, order)
    return statement


def _written(one: Directive) -> Iterator[str]:
    """The words as they are written."""
    past = one.close + 1 if one.name.endswith(_LUA_NAME) and one.block else one.end
    text = one.source.text[one.start : past]
    for mark, _, quote, start, end in read_tokens(text):
        if mark:
            continue
        if quote in {'"', "'"}:
            yield text[start + 1 : end - 1].replace(f"\\{quote}", quote)
        else:
            yield text[start:end]


def _without_parentheses(args: list[str]) -> list[str]:
    """Source: crossplane's parser.py, _prepare_if_args."""
    if not (args and args[0].startswith("(") and args[-1].endswith(")")):
        return args
    args[0] = args[0][1:].lstrip()
    args[-1] = args[-1][:-1].rstrip()
    return args[not args[0] : len(args) - (not args[-1])]
