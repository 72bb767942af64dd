"""Blocking client of the GroupAdmin service, for the command line and for scripts."""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import grpc

from coordinator.assignors import TopicPartition
from coordinator.client.codes import code_name
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.client.transport.wire import (
    by_partition,
    commit_topics,
    fetch_request,
    fetched_offsets,
    request_topics,
)
from coordinator.commit_metadata import TOO_LARGE, of_outsider
from coordinator.operator.nodes import TIMEOUT_S
from coordinator.operator.session_admin import GroupNotFound, SessionGroupAdmin
from coordinator.v1 import admin_pb2 as pb
from coordinator.v1 import admin_pb2_grpc, group_pb2, group_pb2_grpc
from coordinator.v1.errors_pb2 import ErrorCode

GroupOrder = Literal["GROUP_ID", "STATE", "MEMBERS", "LAG", "LAST_REBALANCE"]
"""Orders of a list of groups, as `ListGroupsRequest` describes them."""


class Document(NamedTuple):
    """Bytes that clients keep in a group. `version`: rises with each write, for ever."""

    name: str
    content: bytes
    version: int


GroupDescription = pb.DescribeGroupsResponse.Group
MemberDescription = pb.DescribeGroupsResponse.Member
ReportedEnd = pb.ListLogEndsResponse.Partition
Phase = pb.DescribePhaseResponse
Rebalance = pb.Rebalance
RebalanceParticipant = pb.RebalanceParticipant
RemovedMember = pb.RemovedMember
PartitionMove = pb.PartitionMove
Advice = pb.Advice
RefusedJoin = pb.RefusedJoin


def lag_of(log: ReportedEnd, committed: int | None) -> int:
    """Rows behind the end of a log. `committed`: None: no offset is stored."""
    return int(max(0, log.log_end_offset - max(log.log_begin_offset, committed or 0)))


class GroupAdmin(SessionGroupAdmin):
    """Queries and changes of groups, blocking. Use it as a context manager.

    Every method raises grpc.RpcError when the coordinator cannot be reached, and LookupError
    when nobody coordinates the group.
    """

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[pb.ListGroupsResponse.Group]:
        """Groups of every node, sorted by id; filtered by state and type, if given.

        Raises:
            LookupError: a node cannot list all of its groups, because it loads some; try again.
        """
        request = pb.ListGroupsRequest(states_filter=states, types_filter=types)
        groups, _, refusal = self._list(request, self.addresses().values())
        if refusal:
            raise LookupError(f"The groups cannot be listed at present: {refusal}.")
        return groups

    def find_groups(
        self,
        contains: str = "",
        *,
        limit: int,
        skip: int = 0,
        order: GroupOrder = "GROUP_ID",
        states: Collection[str] = (),
    ) -> tuple[list[pb.ListGroupsResponse.Group], int]:
        """A page of the groups whose id contains a text, with their lag, and the number of all.

        Groups that are being loaded are missing.

        Args:
            limit: the most groups to return, after `skip` of them in `order`.
            states: only groups in these states; empty: in any.
        """
        addresses = self.addresses().values()
        # Each node knows its own groups only, so each of several is asked for the whole beginning.
        skipped = skip if len(addresses) == 1 else 0
        request = pb.ListGroupsRequest(
            group_id_contains=contains,
            limit=skip - skipped + limit,
            skip=skipped,
            order=pb.ListGroupsRequest.Order.Value(f"ORDER_{order}"),
            states_filter=states,
            with_lag=True,
        )
        groups, matching, _ = self._list(request, addresses)
        return groups[skip - skipped :][:limit], matching

    def _list(
        self, request: pb.ListGroupsRequest, addresses: Iterable[str]
    ) -> tuple[list[pb.ListGroupsResponse.Group], int, str]:
        """Groups, the number of those that match, and why some may be missing."""
        lists = []
        matching, refusal = 0, ""
        for address in addresses:
            stub = admin_pb2_grpc.GroupAdminStub(self.channel(address))
            response = stub.ListGroups(request, timeout=TIMEOUT_S)
            lists.append(response.groups)
            matching += response.matching
            if self._remember:
                self._coordinators |= {group.group_id: address for group in response.groups}
            if response.error_code != ErrorCode.NONE:
                refusal = response.error_message or code_name(response.error_code)
        return list(merge(*lists, key=attrgetter("order_value", "group_id"))), matching, refusal

    def describe_group(self, group_id: str) -> pb.DescribeGroupsResponse.Group:
        """Describe one group with its members; its state is Dead if it does not exist."""
        request = pb.DescribeGroupsRequest(groups=[group_id])
        return self._admin(group_id).DescribeGroups(request, timeout=TIMEOUT_S).groups[0]

    def existing_group(self, group_id: str) -> pb.DescribeGroupsResponse.Group:
        """Describe one group, which has to exist.

        Raises:
            GroupNotFound: there is no such group.
            LookupError: the group is being loaded, or moves; try again.
        """
        group = self.describe_group(group_id)
        self._accepted(group, group)
        if group.group_state == "Dead":
            raise GroupNotFound(group_id)
        return group

    def delete_group(self, group_id: str) -> str:
        """Delete a group without members; returns the name of an error code, NONE on success."""
        request = pb.DeleteGroupsRequest(groups_names=[group_id])
        result = self._admin(group_id).DeleteGroups(request, timeout=TIMEOUT_S).results[0]
        return code_name(result.error_code)

    def remove_members(
        self, group_id: str, members: Iterable[tuple[str, str | None]], reason: str = ""
    ) -> list[str]:
        """Remove members on behalf of an operator; one that still runs may join again.

        Args:
            members: (member id, None), or ("", instance id) of a static member.
            reason: for the journal of rebalances; cut at 255 characters.
        Returns:
            The name of an error code for each member, in their order; NONE: it was removed.
        Raises:
            GroupNotFound: there is no such group.
        """
        request = pb.RemoveMembersRequest(
            group_id=group_id,
            members=[
                pb.RemoveMembersRequest.Member(member_id=member_id, group_instance_id=instance_id)
                for member_id, instance_id in members
            ],
            reason=reason,
        )
        response = self._request(self._admin(group_id).RemoveMembers, request)
        return [code_name(member.error_code) for member in response.members]

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        expected: Mapping[TopicPartition, int] | None = None,
        manifest: bytes = b"",
        metadata: Mapping[TopicPartition, str] | None = None,
        requires_empty: bool = False,
    ) -> dict[TopicPartition, str]:
        """Commit from outside the group, all partitions or none.

        Not for members: a commit that a member was refused must not be repeated this way.

        Args:
            expected: offsets that must be the ones stored now; -1: none. Without them the group
                must have no members.
            manifest: stored with the group; at most 64 KiB.
            metadata: stored with the offsets, if the coordinator takes it; by default a new id,
                so that setting the same offset again can be told from the commit before.
            requires_empty: refuse while the group has members, also with `expected`.
        Returns:
            Names of error codes by refused partition; empty on success.
        """
        commits = {
            key: OffsetAndMetadata(offset, metadata.get(key, "") if metadata else of_outsider())
            for key, offset in offsets.items()
        }
        request = group_pb2.OffsetCommitRequest(
            group_id=group_id,
            generation_id=-1,
            atomic=True,
            manifest=manifest,
            topics=commit_topics(commits, expected or {}),
            requires_empty_group=requires_empty,
        )
        refusals = self._commit(request)
        # The coordinator's limit may be below our metadata.
        if TOO_LARGE in refusals.values():
            del request.topics[:]
            request.topics.extend(commit_topics(offsets, expected or {}))
            refusals = self._commit(request)
        return refusals

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, str]:
        """Delete committed offsets; returns the name of an error code for each partition.

        Raises:
            GroupNotFound: there is no such group.
            LookupError: the group has members, of a type whose topics are not known.
        """
        request = pb.OffsetDeleteRequest(
            group_id=group_id,
            topics=request_topics(pb.OffsetDeleteRequest, {key: {} for key in partitions}),
        )
        return _codes(self._request(self._admin(group_id).OffsetDelete, request))

    def offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """All committed offsets of a group."""
        return self.stored(group_id)[0]

    def stored(self, group_id: str) -> tuple[dict[TopicPartition, int], bytes]:
        """All committed offsets of a group and its manifest, read in one call.

        Raises:
            LookupError: the group is being loaded, or moves; try again.
        """
        offsets, manifest = self._fetched(group_id)
        return {key: commit.offset for key, commit in offsets.items()}, manifest

    def offsets_with_metadata(
        self, group_id: str, partitions: Collection[TopicPartition] = ()
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets with their metadata: all of a group, or those of some partitions.

        The offset of a partition that is named and has none is -1.
        """
        return self._fetched(group_id, partitions)[0]

    def put_documents(
        self, group_id: str, contents: Mapping[str, bytes], expected: Mapping[str, int]
    ) -> dict[str, int]:
        """Write documents of a group, all or none.

        Args:
            expected: the version of each that is to be stored now; 0, as by default: none.
        Returns:
            The new versions; empty: another version than the expected one is stored.
        Raises:
            LookupError: the group is being loaded, or moves; try again: it may be written.
            ValueError: the documents of the group would be too large.
        """
        request = group_pb2.PutDocumentsRequest(
            group_id=group_id,
            documents=[
                group_pb2.Document(name=name, content=content, version=expected.get(name, 0))
                for name, content in contents.items()
            ],
        )
        response = self._group(group_id).PutDocuments(request, timeout=TIMEOUT_S)
        if response.error_code == ErrorCode.INVALID_REQUEST:
            raise ValueError(response.error_message)
        versions = self._accepted(request, response).versions
        return dict(zip(contents, versions, strict=True)) if versions else {}

    def documents(
        self, group_id: str, prefix: str = "", after_version: int = 0
    ) -> tuple[list[Document], int]:
        """Documents of a group that were written after a version, and the number of all.

        In the order of their versions, up to 1 MiB: ask again until none comes.

        Raises:
            LookupError: the group is being loaded, or moves; try again.
        """
        request = group_pb2.FetchDocumentsRequest(
            group_id=group_id, prefix=prefix, after_version=after_version
        )
        response = self._request(self._group(group_id).FetchDocuments, request)
        documents = [
            Document(document.name, document.content, document.version)
            for document in response.documents
        ]
        return documents, response.document_count

    def log_ends(self, group_id: str) -> dict[TopicPartition, ReportedEnd]:
        """Ends of the logs of a group's partitions, as members reported them; may be empty."""
        request = pb.ListLogEndsRequest(group_id=group_id)
        response = self._admin(group_id).ListLogEnds(request, timeout=TIMEOUT_S)
        return by_partition(response)

    def journal(self, group_id: str, limit: int = 0) -> pb.ListRebalancesResponse:
        """Rebalances and recently refused members of a group, newest first, with explanations.

        Args:
            limit: the most rebalances to return; 0: all.
        Raises:
            GroupNotFound: there is no such group.
        """
        request = pb.ListRebalancesRequest(group_id=group_id, limit=limit)
        return self._request(self._admin(group_id).ListRebalances, request)

    def phase(self, group_id: str) -> pb.DescribePhaseResponse:
        """Members that the group's current join or sync phase waits for.

        Raises:
            GroupNotFound: there is no such group.
        """
        request = pb.DescribePhaseRequest(group_id=group_id)
        return self._request(self._admin(group_id).DescribePhase, request)

    def watch_rebalances(self, group_ids: Collection[str] = ()) -> Iterator[pb.Rebalance]:
        """Stream the rebalances of these groups, or of all, from every current node as they end.

        The stream ends when the first of the nodes ends its part.

        Raises:
            grpc.RpcError: a node went away, or rebalances come faster than they are consumed.
        """
        request = pb.WatchRebalancesRequest(group_ids=group_ids)
        events: queue.SimpleQueue[pb.Rebalance | grpc.RpcError | None] = queue.SimpleQueue()

        def pump(address: str) -> None:
            try:
                stub = admin_pb2_grpc.GroupAdminStub(self.channel(address))
                for rebalance in stub.WatchRebalances(request):
                    events.put(rebalance)
                events.put(None)
            except grpc.RpcError as error:
                events.put(error)

        for address in self.addresses().values():
            threading.Thread(target=pump, args=(address,), daemon=True).start()
        while (rebalance := events.get()) is not None:
            if isinstance(rebalance, grpc.RpcError):
                raise rebalance
            yield rebalance

    # --- Inside ---

    def _commit(self, request: group_pb2.OffsetCommitRequest) -> dict[TopicPartition, str]:
        response = self._group(request.group_id).OffsetCommit(request, timeout=TIMEOUT_S)
        return {key: code for key, code in _codes(response).items() if code != "NONE"}

    def _fetched(
        self, group_id: str, partitions: Collection[TopicPartition] = ()
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], bytes]:
        """Offsets, and the manifest."""
        request = fetch_request(group_id, partitions)
        response = self._request(self._group(group_id).OffsetFetch, request)
        return fetched_offsets(response), response.manifest

    def _group(self, group_id: str) -> group_pb2_grpc.GroupCoordinatorStub:
        return group_pb2_grpc.GroupCoordinatorStub(self.channel(self.coordinator_of(group_id)))


def _codes(response: Any) -> dict[TopicPartition, str]:  # Any: a response with topics.
    """Name of each partition's error code."""
    return {key: code_name(p.error_code) for key, p in by_partition(response).items()}
