"""The repository keeps its own rules, and every rule of `tidy.py` can object."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import sentences, tidy
from tests.tidy import Source

ROOT = Path(__file__).parents[1]
TEXT_SUFFIXES = set(
    ".py .pyi .md .toml .yaml .yml .proto .sh .txt .json .service .cfg .ini .html .js .css".split()
)
BEHIND_THE_SCENES = {"__pycache__", "build", "dist"}


def repository_paths() -> list[str]:
    """Files that git tracks or would track; without git, files on the disk that are not hidden."""
    try:
        answer = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        names = answer.stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        names = [
            path.relative_to(ROOT).as_posix()
            for path in ROOT.rglob("*")
            if not any(
                part.startswith(".") or part in BEHIND_THE_SCENES or part.endswith(".egg-info")
                for part in path.relative_to(ROOT).parts
            )
        ]
    return [name for name in names if name and (ROOT / name).is_file()]


PATHS = repository_paths()


def _is_text(path: str) -> bool:
    return Path(path).suffix in TEXT_SUFFIXES or (ROOT / path).read_bytes()[:2] == b"#!"


SOURCES = [
    Source(path, (ROOT / path).read_text(encoding="utf-8"))
    for path in PATHS
    if _is_text(path) and not path.startswith(tidy.GENERATED)
]
PYTHON = [source for source in SOURCES if source.path.endswith(".py")]


def _report(offences: Iterator[str]) -> str:
    return "\n".join(offences)


@pytest.mark.parametrize("rule", tidy.PYTHON_RULES, ids=lambda rule: rule.__name__)
def test_python(rule: tidy.Rule) -> None:
    if report := _report(offence for source in PYTHON for offence in rule(source)):
        pytest.fail(report, pytrace=False)


@pytest.mark.parametrize("rule", tidy.TEXT_RULES, ids=lambda rule: rule.__name__)
def test_text(rule: tidy.Rule) -> None:
    if report := _report(offence for source in SOURCES for offence in rule(source)):
        pytest.fail(report, pytrace=False)


@pytest.mark.parametrize("rule", tidy.PATH_RULES, ids=lambda rule: rule.__name__)
def test_paths(rule: tidy.PathRule) -> None:
    if report := _report(rule(PATHS)):
        pytest.fail(report, pytrace=False)


@pytest.mark.parametrize(
    "source", [s for s in SOURCES if s.path.endswith(".md")], ids=lambda source: source.path
)
def test_links(source: Source) -> None:
    if report := _report(tidy.links_resolve(source, PATHS)):
        pytest.fail(report, pytrace=False)


@pytest.mark.parametrize(
    "rule", [*sentences.RULES, *sentences.PAGE_RULES], ids=lambda rule: rule.__name__
)
def test_sentences(rule: tidy.Rule) -> None:
    checked = [s for s in SOURCES if rule in sentences.rules_for(s.path)]
    if report := _report(offence for source in checked for offence in rule(source)):
        pytest.fail(report, pytrace=False)


def test_the_rules_see_the_whole_repository() -> None:
    seen = {source.path for source in SOURCES}
    assert {"coordinator/__init__.py", "tests/run", "tests/tidy.py", "pyproject.toml"} <= seen


# --- The rules themselves: each line is an offence -------------------------------------------

LONG = "def f():\n" + "    x = 1\n" * tidy.FUNCTION_LINES_MAX
LONG_DOCSTRING = 'def f():\n    """Text.\n' + "\n" * 99 + '    """\n    return 1\n'
PROMISE = "TO" + "DO"
MACHINE = "/wo" + "rk/main"

OFFENDERS: list[tuple[tidy.Rule, str, str]] = [
    (tidy.package_imports_nothing, "coordinator/__init__.py", "from . import v1"),
    (tidy.fast_tests_do_not_sleep, "tests/test_x.py", "import time\ntime.sleep(0)"),
    (
        tidy.fast_tests_do_not_sleep,
        "tests/a/test_x.py",
        "from asyncio import sleep\nasync def f(): await sleep(1)",
    ),
    (tidy.fast_tests_do_not_sleep, "tests/bench/test_x.py", "import time\ntime.sleep(1)"),
    (tidy.fast_tests_do_not_sleep, "tests/test_x.py", "from time import sleep as nap\nnap(1)"),
    (tidy.fast_tests_do_not_sleep, "tests/test_x.py", "@pytest.mark.x\ndef f(): time.sleep(1)"),
    (tidy.errors_are_not_swallowed, "timer/x.py", "try: f()\nexcept Exception: pass"),
    (tidy.errors_are_not_swallowed, "timer/x.py", "try: f()\nexcept: ..."),
    (tidy.errors_are_not_swallowed, "x.py", "try: f()\nexcept (OSError, Exception) as e: pass"),
    (tidy.errors_are_not_swallowed, "x.py", "while f():\n try: f()\n except Exception: continue"),
    (tidy.errors_are_not_swallowed, "x.py", "with contextlib.suppress(Exception): f()"),
    (tidy.functions_fit_on_a_screen, "timer/x.py", LONG),
    (tidy.functions_fit_on_a_screen, "timer/x.py", "async " + LONG),
    (tidy.promises_name_their_issue, "timer/x.py", f"x = 1  # {PROMISE}: later"),
    (tidy.promises_name_their_issue, "timer/README.md", f"{PROMISE} draw it"),
    (tidy.promises_name_their_issue, "protos/x.proto", f"int32 a = 1; // {PROMISE}"),
    (tidy.promises_name_their_issue, "deploy/x.yaml", f"# {PROMISE} (soon)"),
    (tidy.no_path_of_a_machine, "deploy/README.md", f"cd {MACHINE} && tests/run"),
    (tidy.no_path_of_a_machine, "tests/test_x.py", "/ro" + "ot/x"),
    (tidy.no_path_of_a_machine, "timer/README.md", "see ../" + "shared/spec"),
    (tidy.no_path_of_a_machine, "coordinator/cli/demo.py", 'open("/tm' + 'p/log")'),
    (tidy.no_path_of_a_machine, "tests/bench/log.py", 'open("/tm' + 'p/log")'),
    (sentences.first_lines_name_their_subject, "timer/x.py", '"""What runs later."""'),
    (sentences.first_lines_name_their_subject, "x.py", 'def f():\n    """Of a file."""'),
    (sentences.first_lines_name_their_subject, "x.py", 'class A:\n    """\n    Who: x."""'),
    (sentences.strings_below_fields_name_their_subject, "x.py", 'A = 1\n"""So many."""'),
    (
        sentences.strings_below_fields_name_their_subject,
        "x.py",
        'class A:\n    b: int\n    """Where it is."""',
    ),
    (sentences.help_texts_name_their_subject, "x.py", "p.add_argument('x', help='where to')"),
    (sentences.help_texts_name_their_subject, "x.py", "p.add_parser('x', description='Of x.')"),
    (sentences.help_texts_name_their_subject, "x.py", "x: int = setting(1, None, 'How long.')"),
    (sentences.help_texts_name_their_subject, "x.py", "Histogram('x', 'From a to b.')"),
    (sentences.comments_name_their_subject, "timer/x.py", "# Whoever asks is answered.\nx = 1"),
    (sentences.comments_name_their_subject, "timer/x.py", "x = 1  # What is left."),
    (sentences.names_are_those_of_the_field, "timer/x.py", "sleepers = 1"),
    (sentences.names_are_those_of_the_field, "timer/x.py", "class Ears: ..."),
    (sentences.titles_name_their_subject, "x.md", "# What holds\n"),
    (sentences.titles_name_their_subject, "x.md", "Text.\n\n### 2. How it is done"),
    (sentences.titles_name_their_subject, "x.md", "# Limits\n\nWhat a message may hold."),
    (sentences.pages_use_the_names_of_the_field, "x.md", "The class `Ears` hears."),
    (sentences.pages_use_the_names_of_the_field, "x.md", "```\nx.has_seat(y)\n```"),
]


@pytest.mark.parametrize(("rule", "path", "text"), OFFENDERS)
def test_rule_objects(rule: tidy.Rule, path: str, text: str) -> None:
    offences = list(rule(Source(path, text)))
    assert offences
    assert offences[0].startswith(f"{path}:")


INNOCENTS: list[tuple[tidy.Rule, str, str]] = [
    (tidy.package_imports_nothing, "coordinator/__init__.py", '__version__ = "1"'),
    (tidy.fast_tests_do_not_sleep, "tests/test_x.py", "asyncio.sleep(delay)"),
    (tidy.fast_tests_do_not_sleep, "tests/test_x.py", "from asyncio import sleep\nsleep(0)"),
    (tidy.fast_tests_do_not_sleep, "tests/spark/test_x.py", "time.sleep(1)"),
    (tidy.fast_tests_do_not_sleep, "tests/bench/log.py", "import time\ntime.sleep(1)"),
    (
        tidy.fast_tests_do_not_sleep,
        "tests/test_x.py",
        "pytestmark = pytest.mark.faults\ntime.sleep(1)",
    ),
    (
        tidy.fast_tests_do_not_sleep,
        "tests/test_x.py",
        "@pytest.mark.integration\ndef test_x(): time.sleep(1)",
    ),
    (tidy.fast_tests_do_not_sleep, "coordinator/client/x.py", "asyncio.sleep(1)"),
    (tidy.errors_are_not_swallowed, "timer/x.py", "try: f()\nexcept OSError: pass"),
    (tidy.errors_are_not_swallowed, "timer/x.py", "try: f()\nexcept Exception: log()"),
    (tidy.functions_fit_on_a_screen, "timer/x.py", LONG_DOCSTRING),
    (tidy.promises_name_their_issue, "timer/x.py", f"# {PROMISE}(#12): later\nx = '{PROMISE}'"),
    (tidy.no_path_of_a_machine, "README.md", "deploy/work/x /tm" + "p/x https://a.b/root/x"),
    (sentences.first_lines_name_their_subject, "timer/x.py", '"""In-memory log. What it holds."""'),
    (sentences.first_lines_name_their_subject, "timer/x.py", 'x = """What is no docstring."""'),
    (sentences.strings_below_fields_name_their_subject, "x.py", 'f()\n"""Of no field."""'),
    (sentences.help_texts_name_their_subject, "x.py", "p.add_argument('x', help='whole file')"),
    (sentences.help_texts_name_their_subject, "x.py", "log('x', what='Of a store.')"),
    (sentences.help_texts_name_their_subject, "x.py", "p.add_argument('x', help=SUPPRESS)"),
    (sentences.comments_name_their_subject, "x.py", "# A sentence that goes on to say\n# What."),
    (sentences.comments_name_their_subject, "timer/x.py", "x = '# What is no comment'"),
    (sentences.names_are_those_of_the_field, "timer/x.py", "x = 'sleepers'  # sleepers"),
    (sentences.titles_name_their_subject, "x.md", "# Limits\n\nIf a node dies, it is restarted."),
    (sentences.titles_name_their_subject, "x.md", "# Limits\n\nText.\n\nWhat follows is prose."),
    (sentences.titles_name_their_subject, "x.md", "# A\n\n```\n# What is a comment\n```"),
    (sentences.pages_use_the_names_of_the_field, "x.md", "Warm standbys, and a Room."),
]


@pytest.mark.parametrize(
    ("path", "rules"),
    [
        ("coordinator/cli/main.py", sentences.RULES),
        ("coordinator/v1/group_pb2.py", []),
        ("deploy/README.md", sentences.PAGE_RULES),
        ("coordinator/decisions/0001-generation-floor.md", []),
        ("CHANGELOG.md", []),
        ("pyproject.toml", []),
    ],
)
def test_sentences_are_checked_in_files_written_by_hand(path: str, rules: list) -> None:
    assert sentences.rules_for(path) == rules


@pytest.mark.parametrize(("rule", "path", "text"), INNOCENTS)
def test_rule_lets_pass(rule: tidy.Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text))) == []


def test_offence_names_file_and_line() -> None:
    source = Source("coordinator/__init__.py", '"""Text."""\n\n\nimport asyncio\n')
    assert list(tidy.package_imports_nothing(source)) == [
        "coordinator/__init__.py:4: imports asyncio: the package itself stays light"
    ]


@pytest.mark.parametrize(
    ("path", "vague"),
    [
        ("coordinator/utils.py", "utils.py"),
        ("coordinator/core/group_helpers.py", "group_helpers.py"),
        ("timer/manager.py", "manager.py"),
        ("tests/helpers/x.py", "helpers"),
    ],
)
def test_vague_names_are_found(path: str, vague: str) -> None:
    offences = list(tidy.names_say_what_is_inside([path, "timer/wheel.py"]))
    assert offences == [f"{path}:1: {vague} does not say what is inside"]


def test_stray_files_in_the_root_are_found() -> None:
    paths = ["README.md", "timer/wheel.py", "setup.py", "src/x.py", ".ci/run"]
    assert [
        offence.partition(":")[0] for offence in tidy.root_holds_only_what_it_should(paths)
    ] == [
        "setup.py",
        "src",
    ]


@pytest.mark.parametrize(
    ("link", "is_good"),
    [
        ("[a](wheel.py)", True),
        ("[a](../README.md#start)", True),
        ("[a](/README.md)", True),
        ("[a](./)", True),
        ("[a](..)", True),
        ("[a](#here)", True),
        ("[a](https://example.org/x)", True),
        ("`[a](gone.py)`", True),
        ("```\n[a](gone.py)\n```", True),
        ("[a](gone.py)", False),
        ('![a](gone.svg "Title")', False),
        ("[a](../../README.md)", False),
        ("[a](README.md)", False),
        ("[a]: gone.py", False),
    ],
)
def test_links_of_a_page(link: str, is_good: bool) -> None:
    paths = ["README.md", "timer/README2.md", "timer/wheel.py"]
    offences = list(tidy.links_resolve(Source("timer/README2.md", f"Text.\n\n{link}\n"), paths))
    assert bool(offences) != is_good
    assert all(offence.startswith("timer/README2.md:3:") for offence in offences)
