"""Wrong command lines: status 2, one sentence, and the closest word; help in sections."""

from __future__ import annotations

import argparse

import pytest

from coordinator.cli.flags import WATCH_S
from coordinator.cli.main import COMMANDS, _with_intervals, main, parser_for
from coordinator.settings import SETTINGS
from coordinator.settings.composed import sections_of_settings


def leaves(parser: argparse.ArgumentParser, *words: str):
    """Every command that can be run, as words, with its parser."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield words, parser
    for action in below:
        for name, inner in action.choices.items():
            yield from leaves(inner, *words, name)


LEAVES = dict(leaves(parser_for(None)))


def run(capsys, *words: str) -> tuple[int, str, str]:
    try:
        status = main(words)
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("grups", "there is no command 'grups'; did you mean groups?"),
        ("xyzzy", "there is no command 'xyzzy'; there are groups, members, policy, topics,"),
        ("groups lst", "there is no command 'lst'; did you mean list?"),
        ("groups list --bootsrap x:1", "there is no flag --bootsrap; did you mean --bootstrap?"),
        ("groups list --boot x:1", "there is no flag --boot; did you mean --bootstrap?"),
        ("groups list --bootsrap=x:1", "there is no flag --bootsrap; did you mean --bootstrap?"),
        ("serve --shrads 3", "there is no flag --shrads; did you mean --shards?"),
        ("cluster describe --zzzz", "there is no flag --zzzz"),
        ("cluster describe -o xml", "'xml' is none of table, json, yaml"),
        ("cluster drain x", "node: 'x' is not a whole number"),
        ("cluster drain", "the following arguments are required: node"),
        ("cluster describe extra", "unexpected: extra"),
        ("health --timeout abc", "'abc' is no number of seconds from 0.1 to 86400"),
        ("health --timeout nan", "'nan' is no number of seconds from 0.1 to 86400"),
        ("health --watch=0", "'0' is no number of seconds from 0.1 to 86400"),
        ("health --bootstrap", "expected one argument"),
        ("completion tcsh", "'tcsh' is none of bash, zsh, fish"),
        ("config nope", "'nope' is none of show, check"),
    ],
)
def test_the_closest_word_is_named(line, sentence, capsys):
    status, out, err = run(capsys, *line.split())
    assert (status, out) == (2, "")
    first, second, end = err.split("\n")
    assert sentence in first
    assert first.startswith("coordinator: ")
    assert second.startswith("Try `coordinator")
    assert end == ""


@pytest.mark.parametrize("words", [[], ["groups"], ["cluster"], ["log"], ["token"]])
def test_a_command_alone_prints_its_help(words, capsys):
    status, out, err = run(capsys, *words)
    assert (status, err) == (0, "")
    assert out.startswith(" ".join(["usage: coordinator", *words]))


def test_help_lists_every_command_in_sections(capsys):
    told = run(capsys, "--help")[1]
    for name, (_, text) in COMMANDS.items():
        assert f"  {name:<12} {text}\n" in told
    assert run(capsys, "help")[1] == told
    assert run(capsys, "help", "cluster", "drain")[1] == run(capsys, "cluster", "drain", "-h")[1]


@pytest.mark.parametrize("command", ["serve", "config"])
def test_settings_are_in_sections_with_default_bounds_and_variable(command, capsys):
    text = " ".join(run(capsys, command, "--help")[1].split())
    for title, (meaning, settings) in sections_of_settings().items():
        assert f"{title}: {meaning}" in text
        for name in settings:
            assert f"COORDINATOR_{name.upper()}]" in text
    assert "; COORDINATOR_SHARDS]" in text
    assert sum(len(settings) for _, settings in sections_of_settings().values()) == len(SETTINGS)


def test_every_flag_has_its_meaning_and_every_command_its_kinds_of_rows():
    for words, parser in LEAVES.items():
        for action in parser._actions:
            assert action.help, (words, action.option_strings)
        if words[0] in ("serve", "completion"):
            continue
        assert parser.get_default("kinds") is not None, words


@pytest.mark.parametrize(
    ("line", "name", "values"),
    [
        ("groups describe a --summary b c", "group", ["a", "b", "c"]),
        ("groups delete a -o json b", "group", ["a", "b"]),
        ("watch -o json a", "group", ["a"]),
        ("cluster elect 1 -o json 2", "shard", [1, 2]),
        ("cluster move 3 1 -o json 2", "node", [1, 2]),
    ],
)
def test_words_stand_on_both_sides_of_a_flag(line, name, values):
    words = line.split()
    for _ in range(2):  # Nothing is left of the first time.
        assert getattr(parser_for(words).parse_args(words), name) == values


def test_a_word_behind_a_flag_has_the_form_of_those_before_it(capsys):
    status, _, err = run(capsys, "cluster", "elect", "1", "-o", "json", "x")
    assert (status, "shard: 'x' is not a whole number" in err) == (2, True)


def test_an_interval_is_no_name_of_a_group(capsys):
    options = parser_for(["health"]).parse_args(["health", "--watch=3"])
    assert options.watch == 3.0
    status, _, err = run(capsys, "health", "--watch", "extra")
    assert (status, "unexpected: extra" in err) == (2, True)
    options = parser_for(["groups"]).parse_args(
        _with_intervals(["groups", "describe", "--watch", "2024-orders"])
    )
    assert (options.watch, options.group) == (WATCH_S, ["2024-orders"])


def test_ctrl_c_is_no_traceback(capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("coordinator.cli.health.show", interrupted)
    assert run(capsys, "health") == (130, "", "")


def test_a_bug_is_reported_in_a_file(capsys, monkeypatch, tmp_path):
    def bug(*_):
        raise KeyError("x")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("coordinator.cli.health.show", bug)
    status, out, err = run(capsys, "health")
    (file,) = tmp_path.iterdir()
    assert (status, out) == (1, "")
    assert err.endswith(f"details: {file}\n")
    assert "KeyError: 'x'" in file.read_text()
    assert "KeyError" not in err


def test_a_lease_that_is_no_number_names_the_profiles(capsys):
    with pytest.raises(SystemExit):
        main(["policy", "set", "g", "lease_ms=quick"])
    assert "or fast, standard, patient, and not 'quick'" in capsys.readouterr().err
