"""Documents: bytes that clients keep in a group under names, each written by compare-and-set.

They outlive members and kinds of a group, and are deleted with it. Nobody but a reader that asks
for them gets them, so they may be many; offsets and their metadata go to every member.
"""

from __future__ import annotations

from coordinator.core.group import Group
from coordinator.core.step import Step
from coordinator.core.values.commands import AnswerRequest
from coordinator.core.values.errors import ErrorCode, MustWait, Refused
from coordinator.core.values.records import DocumentStored
from coordinator.core.values.replies import DocumentsReply, PutReply
from coordinator.core.values.requests import FetchDocuments, PutDocuments

FETCHED_BYTES = 1 << 20
"""Size of a reply's documents; one that is larger comes alone."""


def put_documents(group: Group, command: PutDocuments, step: Step) -> None:
    """Write all documents, or none if a version is not the expected one.

    Raises:
        Refused: INVALID_REQUEST: the group's documents would be too large.
        MustWait: others are on their way to the log.
    """
    if group.document_writes:
        raise MustWait(step.now_ms + step.config.offset_commit_timeout_ms)
    stored = group.documents
    if any(
        _version_of(stored.get(document.name)) != document.expected
        for document in command.documents
    ):
        step.out.reply(command.call_id, PutReply())
        return
    kept = stored.keys() - {document.name for document in command.documents}
    size = sum(len(stored[name].content) for name in kept)
    size += sum(len(document.content) for document in command.documents)
    most = step.config.group_documents_max_bytes
    if size > most:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the documents of the group would have {size} bytes, and may have {most} "
            "(group_documents_max_bytes)",
        )
    first = step.numbers.next_tokens(len(command.documents))
    records = [
        DocumentStored(group.group_id, document.name, document.content, first + i)
        for i, document in enumerate(command.documents)
    ]
    group.document_writes += len(records)
    versions = tuple(record.version for record in records)
    step.out.persist(records, AnswerRequest(command, PutReply(versions=versions)))


def fetch_documents(group: Group | None, command: FetchDocuments, step: Step) -> None:
    """Answer with durable documents that were written after a version."""
    if group is None:
        step.out.reply(command.call_id, DocumentsReply())
        return
    matching = [
        document
        for document in group.documents.values()
        if document.name.startswith(command.prefix)
    ]
    newer = sorted(
        (document for document in matching if document.version > command.after_version),
        key=lambda document: document.version,
    )
    size, sent = 0, list[DocumentStored]()
    for document in newer:
        size += len(document.content)
        if sent and size > FETCHED_BYTES:
            break
        sent.append(document)
    step.out.reply(
        command.call_id, DocumentsReply(documents=tuple(sent), document_count=len(matching))
    )


def _version_of(stored: DocumentStored | None) -> int:
    return 0 if stored is None else stored.version
