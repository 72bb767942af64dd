"""Changes of a group's policy by operators.

A policy is durable before it is answered. It counts at once for everything that is decided after;
a lease is the exception: a member keeps the one it was sent until it attaches again.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.core.config import GroupConfig
from coordinator.core.group import Group
from coordinator.core.step import Step
from coordinator.core.values.commands import AnswerRequest, ApplyPolicy
from coordinator.core.values.errors import ErrorCode, MustWait, Refused
from coordinator.core.values.policy import Policy
from coordinator.core.values.records import PolicyStored
from coordinator.core.values.replies import PolicyReply
from coordinator.core.values.requests import SetGroupPolicy

_DEFAULTS = Policy.defaults()


def set_policy(group: Group, command: SetGroupPolicy, step: Step) -> None:
    """Change some settings of a policy; the others stay.

    Raises:
        Refused: INVALID_REQUEST: a value is not allowed, or a setting is not known.
        MustWait: another change is on its way to the log.
    """
    if group.policy_writes:
        # It changes what that one left.
        raise MustWait(step.now_ms + step.config.offset_commit_timeout_ms)
    policy = changed(group.policy, command, step.config)
    group.policy_writes += 1
    reply = AnswerRequest(command, PolicyReply(policy=policy))
    record = PolicyStored(group.group_id, policy)
    step.out.persist((record,), reply, follow_up=ApplyPolicy(group.group_id))


def note_written(group: Group, _: ApplyPolicy, _step: Step) -> None:
    """The write of a policy is resolved."""
    group.policy_writes -= 1


def changed(policy: Policy, command: SetGroupPolicy, config: GroupConfig) -> Policy:
    """The policy with the command's changes, checked.

    Raises:
        Refused: see `set_policy`.
    """
    changes = {**{name: _default(name) for name in command.defaults}, **dict(command.changes)}
    new_policy = replace(policy, **changes)  # type: ignore[arg-type]  # Checked by the translation.
    new_policy.check(config.group_min_lease_ms)
    return new_policy


def _default(name: str) -> object:
    if name not in _DEFAULTS:
        known = ", ".join(_DEFAULTS)
        raise Refused(ErrorCode.INVALID_REQUEST, f"there is no setting {name}; there are {known}")
    return _DEFAULTS[name]
