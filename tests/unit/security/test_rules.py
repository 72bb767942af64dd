"""Rules: a table of who may do what, and files that are refused with a clear word."""

import pytest

from coordinator.security.errors import CannotSecure
from coordinator.security.rules import DENIED_BY_DEFAULT, Operation, parse

RULES = """
[[rule]]
principal = "cert:billing-1"
operations = ["join", "commit"]
groups = "billing"

[[rule]]
principal = "jwt:team-a-*"
operations = ["read"]
groups = "team-a-*"

[[rule]]
principal = "token:operator"
operations = ["*"]
groups = "*"

[[rule]]
principal = "token:*"
operations = ["read"]
groups = "*"

[[rule]]
principal = "*"
operations = ["commit"]
groups = "open"

[[rule]]
principal = "token:*"
operations = ["*"]
groups = "secret-*"
deny = true
"""

DECISIONS = [
    ("cert:billing-1", "join", "billing", True, "rule 1"),
    ("cert:billing-1", "commit", "billing", True, "rule 1"),
    ("cert:billing-1", "read", "billing", False, DENIED_BY_DEFAULT),
    ("cert:billing-1", "join", "billing-2", False, DENIED_BY_DEFAULT),  # Literal.
    ("cert:billing-12", "join", "billing", False, DENIED_BY_DEFAULT),
    ("token:billing-1", "join", "billing", False, DENIED_BY_DEFAULT),  # Another kind of proof.
    ("jwt:team-a-bob", "read", "team-a-orders", True, "rule 2"),
    ("jwt:team-a-bob", "read", "team-a-", True, "rule 2"),
    ("jwt:team-a-bob", "read", "team-b-orders", False, DENIED_BY_DEFAULT),
    ("jwt:team-b-bob", "read", "team-a-orders", False, DENIED_BY_DEFAULT),
    ("token:operator", "admin", "anything", True, "rule 3"),
    ("token:operator", "admin", None, True, "rule 3"),
    ("token:operator", "admin", "secret-7", False, "rule 6"),  # Denial wins, wherever it stands.
    ("token:grafana", "read", None, True, "rule 4"),
    ("token:grafana", "join", "anything", False, DENIED_BY_DEFAULT),
    ("jwt:team-a-bob", "read", None, False, DENIED_BY_DEFAULT),  # A prefix is not everything.
    ("cert:whoever", "commit", "open", True, "rule 5"),
    ("cert:whoever", "commit", "", False, DENIED_BY_DEFAULT),
]


@pytest.mark.parametrize(("principal", "operation", "group", "allowed", "rule"), DECISIONS)
def test_the_rule_that_decides_is_named(principal, operation, group, allowed, rule):
    decision = parse(RULES).decide(principal, Operation(operation), group)
    assert decision.is_allowed is allowed
    assert decision.rule.startswith(rule)


def test_without_a_rule_nobody_may_do_anything():
    rules = parse("")
    assert not any(
        rules.decide("cert:x", operation, group).is_allowed
        for operation in Operation
        for group in ("g", "", None)
    )


@pytest.mark.parametrize(
    ("principal", "is_unlimited"),
    [
        ("token:operator", False),  # But for secret-*.
        ("jwt:team-a-bob", False),
        ("cert:anyone", False),
        ("cert:auditor", True),
    ],
)
def test_who_may_read_everything_without_exception(principal, is_unlimited):
    auditor = '[[rule]]\nprincipal = "cert:auditor"\noperations = ["read"]\ngroups = "*"\n'
    assert parse(RULES + auditor).is_unlimited(principal, Operation.READ) is is_unlimited


def rule(**changes):
    fields = {"principal": '"p"', "operations": '["read"]', "groups": '"g"', **changes}
    return "[[rule]]\n" + "\n".join(f"{k} = {v}" for k, v in fields.items() if v is not None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rule", "not TOML"),
        ("rules = 1", r"holds \[\[rule\]\] tables only, not rules"),
        ("rule = 3", "tables only"),
        ("rule = [3]", "rule 1 is not a table"),
        (rule() + "\n" + rule(principal=None), "rule 2: principal is a text"),
        (rule(groups='""'), "rule 1: groups is a text"),
        (rule(groups='"a*b"'), r"groups 'a\*b': \* stands at the end only"),
        (rule(principal='"**"'), "stands at the end only"),
        (rule(operations="[]"), "operations is a list"),
        (rule(operations='"read"'), "operations is a list"),
        (rule(operations='["write"]'), "operations may be read, join, commit, admin, or"),
        (rule(operations='["*", "read"]'), "or \\* alone"),
        (rule(deny='"yes"'), "deny is true or false"),
        (rule(group='"g"'), "there is no field group"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(text, said):
    with pytest.raises(CannotSecure, match=said):
        parse(text)
