"""Configurations that nobody writes, and that end no command: long chains, zero bytes."""

from rows import each_row

from nginx_tune.conf.scopes import scopes
from nginx_tune.conf.tree import parse_text
from nginx_tune.conf.variables import DEEPEST, Variables


def _root_of(http: str, server: str, root: str) -> tuple[set[str], bool]:
    text = f"events {{}} http {{ {http} server {{ {server} root {root}; }} }}"
    tree = parse_text(text)
    scope = next(one for one in scopes(tree) if one.server is not None)
    values = Variables(tree).possible(root, scope)
    return set(values.known), values.complete


def _maps(count: int) -> str:
    return "".join(f"map $a{n} $a{n + 1} {{ default x; }}" for n in range(count))


def _sets(count: int) -> str:
    return "set $a0 x;" + "".join(f"set $a{n + 1} $a{n};" for n in range(count))


@each_row("count", [DEEPEST, 200, 3000])
def test_a_long_chain_of_variables_is_not_known(count: int) -> None:
    assert not _root_of("", _sets(count), f"/srv/$a{count}")[1]
    _root_of(_maps(count), "", f"/srv/$a{count}")


def test_a_chain_of_some_variables_is_followed_to_its_end() -> None:
    count = DEEPEST - 1
    assert _root_of("", _sets(count), f"/srv/$a{count}") == ({"/srv/x"}, True)


@each_row("line", ['include "a\0b";', 'root "/a\0b";', "root /a\0b;", "ro\0ot /a;"])
def test_a_zero_byte_in_a_word_is_a_fault_of_its_line(line: str) -> None:
    tree = parse_text(f"events {{}}\nhttp {{ server {{ {line} }} }}")
    (fault,) = tree.unparsed
    assert fault.line == 2
    assert fault.reason.startswith("a zero byte in a word")


def test_a_zero_byte_in_a_comment_or_in_lua_is_none() -> None:
    text = "# a\0b\nevents {} http { init_by_lua_block { x = 'a\0b' } }"
    assert not parse_text(text).unparsed
