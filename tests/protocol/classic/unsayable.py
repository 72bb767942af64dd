"""Scenarios that Kafka's wire has no words for, by reason.

A scenario that is listed has to fail for that reason (conftest.py), and the others have to pass:
the list is neither longer nor shorter than it has to be.
"""

from __future__ import annotations

REASONS: dict[str, tuple[str, ...]] = {
    "a commit has no condition (expected offsets, all or nothing, an empty group)": (
        "test_compare_and_set",
        "test_of_two_racing_compare_and_sets_one_wins",
        "test_an_atomic_commit_is_all_or_nothing",
        "test_a_commit_that_requires_an_empty_group_is_refused_while_it_has_members",
        "test_who_waits_for_a_write_waits_no_longer_than_its_time_out",
        "test_who_waits_for_a_write_that_is_refused_goes_on",
        "test_compare_and_sets_are_compared_in_their_order",
        "test_a_client_that_goes_away_while_it_waits_commits_nothing",
        "test_a_fence_after_an_unavailable_answers_everybody",
    ),
    "a commit has no manifest": ("test_a_manifest_lives_as_long_as_its_commit_and_has_a_limit",),
    "members are removed with LeaveGroup, which does not say that an operator did it": (
        "test_an_operator_removes_members_by_either_id_in_one_rebalance",
        "test_a_member_that_an_operator_removed_may_join_again",
        "test_an_operator_hears_that_there_is_no_group",
        "test_members_that_an_operator_removed",
        "test_one_removed_by_an_operator_and_not_heard_since_a_fail_over_may_have_been_dead",
    ),
    "members cannot say since when an outage has stopped them": (
        "test_a_commit_that_had_no_answer_says_since_when_its_owner_waits",
        "test_a_member_that_lost_its_session_in_an_outage_says_when_it_stopped",
        "test_nobody_stopped_before_its_generation_or_after_now",
    ),
    "members cannot report where their logs end": (
        "test_the_last_word_counts_with_its_time",
        "test_only_members_of_the_generation_tell",
        "test_a_report_is_no_sign_of_life",
        "test_what_was_told_outlives_its_member_and_goes_with_its_offset",
        "test_a_listing_shows_assignor_lag_and_the_last_rebalance",
        "test_groups_are_sorted_by_what_operators_look_for",
    ),
    "a listing has filters by state and type only, no order, no pages and no lag": (
        "test_159_groups_are_found_by_a_part_of_their_id_and_the_first_are_shown",
        "test_a_listing_shows_since_when_a_group_rebalances",
        "test_a_return_is_no_rebalance_in_a_listing",
        "test_an_order_that_is_none_is_refused",
        "test_a_page_of_a_large_node_holds_its_own_groups_only",
    ),
    "JoinGroup 3, which lets members in without an id, does not answer with a protocol type": (
        "test_010_all_hear_the_protocol_and_only_the_leader_hears_of_the_members",
    ),
    "JoinGroup 8, whose leaders cannot skip the assignment, does not answer whether to": (
        "test_111_a_leader_that_cannot_skip_does_not_learn_that_it_leads",
    ),
}
UNSAYABLE = {name: reason for reason, names in REASONS.items() for name in names}
