"""Every error of core, in every API and version, is a code of Kafka's that its clients know."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as KafkaCode

from coordinator.core.values.errors import ErrorCode
from coordinator.kafka import apis, errors
from coordinator.kafka.apis import APIS
from coordinator.kafka.errors import wire_code

KAFKA = {int(code) for code in KafkaCode}


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_only_codes_of_kafka_are_answered(api):
    for version in range(api.low, api.high + 1):
        for error in ErrorCode:
            code = wire_code(error, api, version)
            assert code in KAFKA
            assert (code == 0) is (error is ErrorCode.NONE)


def test_ours_become_unknown_server_errors():
    ours = [error for error in ErrorCode if error > errors.HIGHEST]
    assert ours == [ErrorCode.OFFSET_MISMATCH, ErrorCode.FENCED_TOKEN]
    for error in ours:
        assert wire_code(error, apis.OFFSET_COMMIT, 9) == errors.UNKNOWN_SERVER_ERROR
    assert max(KAFKA) < errors.HIGHEST


def test_codes_are_the_same_in_all_apis_but_for_the_table():
    for api in APIS.values():
        for error in ErrorCode:
            if error not in errors.OF_API.get(api, {}) and error < errors.HIGHEST:
                assert wire_code(error, api, api.low) == wire_code(error, api, api.high) == error


def test_a_commit_to_no_group_is_of_a_wrong_generation_before_version_9():
    found = [wire_code(ErrorCode.GROUP_ID_NOT_FOUND, apis.OFFSET_COMMIT, v) for v in range(2, 10)]
    assert found == [22] * 7 + [69]


@pytest.mark.parametrize("name", [n for n in dir(errors) if n.isupper() and n[0] != "_"])
def test_the_codes_of_the_module_are_those_of_kafka(name):
    value = getattr(errors, name)
    if isinstance(value, int) and name != "HIGHEST":
        assert KafkaCode[name.lower()] == value
