"""A whole configuration in one file: the output of ``nginx -T``, or crossplane's payload.

Both are split into the files that they contain, so that places are those of the original files.

``nginx -T`` prints each file once, in the order of reading: ``# configuration file PATH:``, a line
end, the file's bytes, a line end (nginx.c, main). Messages of nginx (``syntax is ok``) may precede
the first file.

A payload is what agents send, and what ``crossplane parse`` prints. Words are as written, without
their quotes. An escaped quote inside quotes has lost its backslash, ``if`` has lost its
parentheses, and a Lua block's source is its last argument. Every statement has the line number of
its name, so a text with the same line numbers can be rebuilt, but not the spaces and comments.
Source: crossplane 0.5, README "crossplane parse" and parser.py.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from nginx_tune.conf.directive import Block, Directive, as_utf8
from nginx_tune.conf.parser import DEEPEST, read_tokens
from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.errors import NginxTuneError, UsageError

_HEAD = re.compile(rb"^# configuration file ([^\r\n]+):\r?\n", re.MULTILINE)


_SAID = re.compile(rb"nginx: |\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[\w+\] ")
"""The beginning of a message of nginx. Source: ngx_log_stderr and ngx_log_error_core."""


_MOST_PASTED = 16
"""Maximum number of pasted headers to remove; the dump is parsed again after each removal."""


class AbsentError(NginxTuneError):
    """A file that the dump does not contain."""

    reason = "not in the dump"


class Dump(NamedTuple):
    """The files of a dump, from which a tree can be read as from a host."""

    main: str
    files: dict[str, bytes]

    def read_bytes(self, path: str) -> bytes:
        """Contents of a file; AbsentError if the dump does not contain it."""
        return _content(self.files, path)

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory that the dump has; a dump has every file that a pattern matched."""
        bases = {f"{one.rstrip('/')}/" for one in (path, _normal(path))}
        below = {
            file[len(base) :].partition("/")[0]
            for base in bases
            for file in self.files
            if file.startswith(base)
        }
        return sorted(below)


def _content(files: Mapping[str, bytes], path: str) -> bytes:
    found = files.get(path, files.get(_normal(path)))
    if found is None:
        raise AbsentError(f"{path}: not in the dump")
    return found


def parse_dump(data: bytes) -> Dump:
    """The files of a dump; the first is the main one.

    A file may itself contain a line that looks like a header, for example pasted from a dump. Such
    a line belongs to the file around it if no include reaches the named file, or if an earlier
    header with that name has other contents. Old versions of nginx print a file as often as it is
    included.
    Errors: UsageError for a dump without files.
    """
    heads = list(_HEAD.finditer(data))
    if not heads:
        raise UsageError(
            "standard input: not the output of nginx -T", hint="nginx -T | nginx-tune audit -"
        )
    heads = _without_pasted(data, heads)
    dump = _split(data, heads)
    reached, faults = _follow(dump)
    for _ in range(_MOST_PASTED):
        idle = next((head for head in heads if _name(head) not in reached), None)
        if idle is None:
            break
        fewer = [head for head in heads if head is not idle]
        joined = _split(data, fewer)
        reached, after = _follow(joined)
        if after > faults:
            break  # a real file: without its header, there are more faults
        heads, dump, faults = fewer, joined, after
    return dump


def _follow(dump: Dump) -> tuple[set[str], int]:
    """The files that the includes of a dump reach, and the number of parse errors."""
    reached = set()

    class Reached(Dump):
        """A dump that records the names of the files that are read, even if parsing them fails."""

        def read_bytes(self, path: str) -> bytes:
            """Contents of a file."""
            reached.add(_normal(path))
            return _content(self.files, path)

    return reached, len(read_tree(dump.main, Reached(*dump)).unparsed)


def _without_pasted(data: bytes, heads: list[re.Match[bytes]]) -> list[re.Match[bytes]]:
    """The headers, without those that repeat a file's name but precede other contents."""
    first: dict[str, bytes] = {}
    kept = []
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        content = _behind(data, head, after)
        if first.setdefault(_name(head), content) == content:
            kept.append(head)
    return kept


def _split(data: bytes, heads: list[re.Match[bytes]]) -> Dump:
    files: dict[str, bytes] = {}
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        files.setdefault(_name(head), _behind(data, head, after))
    return Dump(next(iter(files)), files)


def _behind(data: bytes, head: re.Match[bytes], after: re.Match[bytes] | None) -> bytes:
    return _without_line_end(data[head.end() : len(data) if after is None else after.start()])


def printed(data: bytes, files: Mapping[str, bytes]) -> list[str]:
    """The files of ``files`` that a dump contains, complete and under their own headers.

    A header alone proves nothing, because a file may contain such a line. So the file's known
    contents must follow, and the line end that nginx adds. If the contents differ, the file was
    changed in the meantime.
    Source: nginx.c, main (``ngx_dump_config``).
    """
    ends: dict[str, list[int]] = {}
    for head in _HEAD.finditer(data):
        ends.setdefault(_name(head), []).append(head.end())
    return [
        path
        for path, content in files.items()
        if any(_is_whole(data, end, content) for end in ends.get(_normal(path), []))
    ]


def _is_whole(data: bytes, start: int, content: bytes) -> bool:
    """True if a file's contents follow, and then the next header or the end of the dump."""
    end = start + len(content) + 1
    if not data.startswith(content + b"\n", start):
        return False
    return end == len(data) or _HEAD.match(data, end) is not None


def _name(head: re.Match[bytes]) -> str:
    return _normal(head[1].decode("utf-8", "surrogateescape"))


def _normal(path: str) -> str:
    """A path in one spelling: glob(3) and includes may double slashes or contain ``..``."""
    return posixpath.normpath(path)


def is_dump(data: bytes) -> bool:
    """True if a saved file is the output of ``nginx -T``, not a configuration by itself.

    Only nginx's own messages precede the first header. A single file after its header is not
    treated as a dump, so that its includes are read on this host.
    """
    heads = _HEAD.finditer(data)
    first, second = next(heads, None), next(heads, None)
    if first is None or second is None:
        return False
    before = data[: first.start()].splitlines()
    return all(not line.strip() or _SAID.match(line) for line in before)


def _without_line_end(text: bytes) -> bytes:
    """A file's bytes without the line end that ``nginx -T`` adds."""
    return (
        text.removesuffix(b"\n").removesuffix(b"\r")
        if text.endswith(b"\r\n")
        else (text.removesuffix(b"\n"))
    )


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
    """The indices in the payload of the files that an include read."""
    block: list[Statement] | None = None
    comment: str | None = None
    file: str | None = None
    """The file's name, set only if the files were combined into one."""


class FileError(msgspec.Struct):
    """The reason why a file is incomplete."""

    error: str
    line: int | None = None


class PayloadError(FileError, kw_only=True):
    """The reason why a file is incomplete, with its name."""

    file: str


class PayloadFile(msgspec.Struct):
    """One file of a payload."""

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
    """True if data begins as a JSON object, unlike any configuration or template tag."""
    return _JSON_OBJECT.match(data) is not None


def read_payload(data: bytes, name: str) -> Dump:
    """The files of a payload, as text with the original line numbers.

    Files that crossplane could not parse completely are left out. ``name`` is used in messages.
    Errors: UsageError if it is not a payload, or if its files were combined into one.
    """
    try:
        payload = msgspec.json.decode(data, type=Payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(
            f"{name}: not a payload of crossplane: {error}", hint="crossplane parse nginx.conf"
        ) from None
    if not payload.config:
        raise UsageError(f"{name}: a payload without files", hint="crossplane parse nginx.conf")
    main = payload.config[0]
    if any(statement.file is not None for statement in main.parsed):
        raise UsageError(
            f"{name}: its files were combined into one, so their line numbers are lost",
            hint="crossplane parse nginx.conf, without --combine",
        )
    if main.status != "ok":
        why = main.errors[0].error if main.errors else "it gives no reason"
        raise UsageError(f"{name}: crossplane could not parse {main.file}: {as_utf8(why)}")
    files: dict[str, bytes] = {}
    for payload_file in payload.config:
        if payload_file.status == "ok":
            path = posixpath.normpath(payload_file.file)
            files.setdefault(path, _text(payload_file).encode("utf-8", "surrogateescape"))
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
    """Texts with their line numbers; 0 for a closing brace, whose line is not known."""
    if depth > DEEPEST:
        raise UsageError(f"a payload with more than {DEEPEST} nested blocks")
    for statement in statements:
        if statement.directive == _COMMENT and statement.comment is not None:
            yield (
                statement.line,
                f"#{statement.comment.splitlines()[0] if statement.comment else ''}\n",
            )
        elif statement.block is not None:
            yield statement.line, f"{_words(statement)} {{"
            yield from _pieces(statement.block, depth + 1)
            yield 0, "}"
        elif statement.directive.endswith(_LUA_NAME) and statement.args:
            head = Statement(statement.directive, statement.line, statement.args[:-1])
            yield statement.line, f"{_words(head)} {{{statement.args[-1]}}}"
        else:
            yield statement.line, f"{_words(statement)};"


def _words(one: Statement) -> str:
    args = [_word(arg) for arg in one.args]
    if one.directive == "if" and args:
        args[0] = f"( {args[0]}" if args[0].startswith('"') else f"({args[0]}"
        args[-1] += ")"
    return " ".join([_word(one.directive), *args])


def _word(text: str) -> str:
    """A word as written in a file, in quotes if it needs them."""
    if _PLAIN.fullmatch(text):
        return text
    inner = _ESCAPED_OR_QUOTE.sub(lambda found: found[1] or '\\"', text)
    if (len(inner) - len(inner.rstrip("\\"))) % 2:  # it would escape the closing quote
        inner += "\\"
    return f'"{inner}"'


def payload_of(tree: ConfTree) -> Payload:
    """A tree as ``crossplane parse`` prints it.

    Words and globs are read as nginx reads them. The differential test lists the cases in which
    crossplane reads them differently.
    """
    order = _Order(tree)
    files = [  # the list grows: included files are appended in the order met
        PayloadFile(as_utf8(file.source.file), _statements(file.block, order))
        for file in order.files
    ]
    errors = [PayloadError(error=u.reason, line=u.line, file=u.file) for u in tree.unparsed]
    for error in errors:
        reason = FileError(error.error, error.line)
        own = [file for file in files if file.file == error.file]
        for payload_file in own:
            payload_file.status, payload_file.errors = "failed", [*payload_file.errors, reason]
        if not own:
            files.append(PayloadFile(error.file, [], "failed", [reason]))
    return Payload(files, "failed" if errors else "ok", errors)


def encode_payload(tree: ConfTree) -> bytes:
    """The payload of a tree as JSON."""
    return msgspec.json.encode(payload_of(tree)) + b"\n"


class _Order:
    """Numbers the files in the order of the payload."""

    def __init__(self, tree: ConfTree) -> None:
        self._by_block = {id(file.block): file for file in tree.parsed}
        self.files = [file for file in tree.parsed if file.block is tree.main]
        self._index = {id(file.block): 0 for file in self.files}

    def index(self, block: Block) -> int:
        """The number of a file; a new file gets the next one."""
        if id(block) not in self._index:
            self._index[id(block)] = len(self.files)
            self.files.append(self._by_block[id(block)])
        return self._index[id(block)]


def statements_of(block: Block) -> list[Statement]:
    """The statements of one file, as crossplane prints them without following includes."""
    return _statements(block, None)


def _statements(block: Block, order: _Order | None) -> list[Statement]:
    return [_statement(directive, order) for directive in block.directives]


def _statement(one: Directive, order: _Order | None) -> Statement:
    name, *args = map(as_utf8, _written(one))
    statement = Statement(name, one.line, _without_parentheses(args) if name == "if" else args)
    if name == "include" and order is not None:
        statement.includes = [order.index(block) for block in one.included or ()]
    if one.block is not None and not name.endswith(_LUA_NAME):
        statement.block = _statements(one.block, order)
    return statement


def _written(one: Directive) -> Iterator[str]:
    """The words as written, without the quotes around them."""
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
    """The arguments of an ``if`` without its parentheses.

    Source: crossplane's parser.py, _prepare_if_args.
    """
    if not (args and args[0].startswith("(") and args[-1].endswith(")")):
        return args
    args[0] = args[0][1:].lstrip()
    args[-1] = args[-1][:-1].rstrip()
    return args[not args[0] : len(args) - (not args[-1])]
