"""The kit that reads documents: each line is a page's, and how tests take it."""

import pytest

from tests.kit.documents import Block, Command, blocks, commands, missing_lines

PAGE = """# Title

```python
# worker.py
x = 1
```

```console
$ a --b \\
    c   # a remark
one
$ d & e=$!
```
"""


def test_blocks_of_a_page_are_found_in_order(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    program, session = blocks(page)
    assert program == Block("python", "# worker.py\nx = 1\n")
    assert program.name == "worker.py"
    assert session.name == ""
    assert blocks(page, "console") == [session]
    assert commands(session.text) == [Command("a --b      c", ("one",)), Command("d & e=$!")]
    assert [command.is_background for command in commands(session.text)] == [False, True]


def test_output_without_a_command_is_an_error():
    with pytest.raises(ValueError, match="before the first command: 'one'"):
        commands("one\n$ two\n")


@pytest.mark.parametrize(
    ("expected", "output", "missing"),
    [
        ([], "anything", []),
        (["a"], "b\na  \n", []),
        (["a", "b"], "b\na", ["b"]),
        (["took … ms"], "took 12 ms", []),
        (["took … ms"], "took 12 s", ["took … ms"]),
        (["a (b) [c]"], "a (b) [c]", []),
        (["a"], "ab", ["a"]),
        (["GROUP  ID  HOST", "g      …   h"], "GROUP ID     HOST\ng     a-17   h", []),
        (["", "a"], "x\n\na", []),
    ],
)
def test_expected_lines_are_found_in_order(expected, output, missing):
    assert missing_lines(expected, output) == missing


def test_programs_in_the_background_print_in_any_order():
    assert missing_lines(["a …", "b"], "b\na 1", in_order=False) == []
    assert missing_lines(["a …", "b", "c"], "b\na 1", in_order=False) == ["c"]
    assert missing_lines(["a is done", "b is done"], "a is doneb is done\n\n", in_order=False) == []
