"""Refusals and failures as sentences: the one place that turns errors into words for people.

No name of an error code, no type and no traceback of Python is in a sentence.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

import grpc

from coordinator.client.errors import CoordinatorError
from coordinator.core.values.errors import ErrorCode, advice
from coordinator.handshake import tls_failure
from coordinator.operator.admin import GroupAdmin
from coordinator.operator.nodes import TIMEOUT_S
from coordinator.operator.session_admin import GroupNotFound
from coordinator.storage.log import CannotOpen, Damaged, LogError

LOOKED_AT = 10_000
"""Groups among which the nearest names are looked for, in 0.3 s."""
_REFUSED = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)
_TRANSPORT = (
    (
        re.compile(
            "DNS resolution failed|Name or service not known|lookup failed|Domain name not found"
        ),
        "the name has no address",
    ),
    (re.compile("Connection refused"), "nothing listens there (connection refused)"),
    (re.compile("Socket closed|Connection reset"), "the connection was closed"),
    (re.compile("[Nn]o route to host|unreachable"), "there is no route to it"),
    (re.compile("[Tt]imed? ?out|Deadline"), "it did not answer in time"),
)
"""Causes in the words of gRPC, and in ours."""
_LAST_CODE = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+(?=\.?$)")
"""An answer's error code, which ends the sentence if the node has sent no message."""
_PREFIX = re.compile(r"^.*last error: (?:[A-Z_]+: )?", re.DOTALL)


def refusal(error: BaseException, options: argparse.Namespace) -> str | None:
    """The sentence for an error that users cause or can do something about; None for our bugs."""
    if isinstance(error, grpc.RpcError):
        return complaint(options, error)
    if isinstance(error, BrokenPipeError):
        return None  # `main` handles it.
    if isinstance(error, UnicodeEncodeError):
        return "an argument is not text in UTF-8"
    if isinstance(error, UnicodeError):
        return "the file is not text in UTF-8"
    if isinstance(error, OSError):
        return of_system(error)
    if isinstance(error, CannotOpen | Damaged | LogError | CoordinatorError):
        return str(error)
    if isinstance(error, KeyError | IndexError):
        return None  # A LookupError, but none of those that we raise.
    if isinstance(error, GroupNotFound):
        with GroupAdmin(options.bootstrap, credentials=options.credentials) as admin:
            return no_such_group(error, group_names(admin))
    if isinstance(error, LookupError | ValueError) and error.args:
        return _LAST_CODE.sub(_advice_for, str(error.args[-1]))
    return None


def advice_of(code: str) -> str:
    """Advice for an error code, in half a sentence."""
    return advice(ErrorCode[code]) if code in ErrorCode.__members__ else f"error {code}"


def _advice_for(code: re.Match[str]) -> str:
    return advice_of(code[0]) if code[0] in ErrorCode.__members__ else code[0]


def of_system(error: OSError) -> str:
    """An error of the operating system: the file, and what is the matter with it."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def complaint(options: argparse.Namespace, error: grpc.RpcError) -> str:
    """The sentence for a call that failed."""
    code, details, through = error.code(), error.details() or "", options.credentials.through
    nodes = f"{options.bootstrap}{through}"
    if code in _REFUSED:
        return f"{nodes} refuses: {details}"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return f"{nodes} does not know this request: it is another program, or an older version"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer from {nodes} within {TIMEOUT_S:g} s"
    if code is grpc.StatusCode.UNAVAILABLE:
        first = options.bootstrap.split(",")[0]
        why = "" if through else tls_failure(first, options.credentials)
        return f"no answer from {nodes}: {why or _of_transport(details)}"
    return f"no answer from {nodes}: {details}"


def _of_transport(details: str) -> str:
    reason = _PREFIX.sub("", details)
    return next((meaning for known, meaning in _TRANSPORT if known.search(details)), reason)


def not_there(subject: str, name: object, known: Sequence[object], *, plural: str = "") -> str:
    """A sentence for what does not exist that says what does, the nearest first."""
    plural = plural or f"{subject}s"
    if not known:
        return f"There is no {subject} {name}: there are no {plural}."
    return f"There is no {subject} {name}; the {plural} are {nearest(name, known)}."


def group_names(admin: GroupAdmin) -> list[str] | None:
    """Ids of groups that there are; None: they cannot be listed at present."""
    try:
        return [group.group_id for group in admin.list_groups()[:LOOKED_AT]]
    except (grpc.RpcError, LookupError):
        return None


def no_such_group(error: GroupNotFound, known: Sequence[str] | None) -> str:
    """The sentence for a group that does not exist, with groups that do, the nearest first."""
    reason = str(error).removesuffix(".")
    if known is None:
        return f"{reason}."
    if not known:
        return f"{reason}: there are no groups."
    return f"{reason}; the groups are {nearest(error.group_id, known)}."


def nearest(name: object, known: Sequence[object]) -> str:
    """The first ten of what is known, those whose names are like `name` before the others."""
    import difflib

    some = [str(similar) for similar in known]
    near = difflib.get_close_matches(str(name), some, n=3, cutoff=0.5)
    order = [*near, *(some_name for some_name in some if some_name not in near)]
    return ", ".join(order[:10]) + (f" and {len(some) - 10} more" if len(some) > 10 else "")
