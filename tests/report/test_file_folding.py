"""Files on a terminal: comments and sentences folded, every other byte as it is."""

from rows import each_row

from nginx_tune.report.folding import fold_file

CONF = """\
# Left as nginx has it, on purpose:
#   aio threads: left off, since the size of the data is not known; on costs CPU for every hit
error_log /var/log/nginx/error.log warn;  # what the default level hides: reused connections
events {
    worker_connections 4096; # a slot for each client that is there at once
}
log_format a '$x; # of a format, which is no comment, however long the line may become here';
"""


def _uncommented(text: str) -> list[str]:
    return [
        code
        for line in text.splitlines()
        if (code := line.partition(" # ")[0].rstrip()) and not code.lstrip().startswith("#")
    ]


@each_row("width", [50, 60, 72, 80, 300])
def test_comments_are_folded_and_stay_comments(width: int) -> None:
    lines = fold_file(CONF, "nginx", width).splitlines()
    assert [line for line in lines if len(line) > width] == (
        [CONF.splitlines()[-1]] if width < 90 else []
    )
    assert _uncommented("\n".join(lines)) == _uncommented(CONF)
    said = " ".join(word for line in lines for word in line.split() if word != "#")
    assert said == " ".join(word for word in CONF.split() if word != "#")


def test_a_diff_is_itself_and_what_stands_before_it_is_folded() -> None:
    head = "# /etc/nginx/nginx.conf:1: worker_processes 2 → worker_processes 4;  (workers, high: so"
    body = ["--- a/nginx.conf", "+++ b/nginx.conf", "@@ -1 +1 @@"]
    body += [" # " + "a comment " * 20, "-x " + "y " * 60, "+x " + "z " * 60]
    lines = fold_file("\n".join([head, *body]), "diff", 60).splitlines()
    assert lines[-len(body) :] == body
    assert all(line.startswith("# ") and len(line) <= 60 for line in lines[: -len(body)])


def test_markdown_stays_markdown() -> None:
    sentence = "- line 1: `worker_processes 2` becomes `worker_processes 4;`, because of so and so"
    row = "| " + "cell " * 30 + "|"
    code = "+" + "code " * 30
    text = f"# {'Heading ' * 12}\n\n{sentence}\n{row}\n```diff\n{code}\n```\n"
    lines = fold_file(text, "md", 60).splitlines()
    assert {row, code, text.splitlines()[0]} <= set(lines)
    start = lines.index(next(line for line in lines if line.startswith("- line 1")))
    assert lines[start + 1].startswith("  ")
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
