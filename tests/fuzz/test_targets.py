"""A short campaign in every run of the tests: the same inputs each time, and no engine needed."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz import corpus
from tests.fuzz.mutate import mutations
from tests.fuzz.targets import SHARES, load

EXECUTIONS = 10_000
RECORD = Path(__file__).parent / "record.json"


@pytest.fixture(params=SHARES)
def it(request):
    return load(request.param)


def test_every_decoder_bears_what_once_broke_one(it):
    kept = corpus.read(it.name)
    assert kept
    for data in kept:
        it.target(data)


def test_every_decoder_bears_mutations_of_what_is_right(it):
    seeds = [*it.seeds(), *corpus.read(it.name)]
    for data in islice(mutations(seeds, seed=1), EXECUTIONS * SHARES[it.name] // 100):
        try:
            it.target(data)
        except Exception as error:
            error.add_note(f"input: {data.hex()}")
            raise


def test_the_shares_are_of_a_whole_and_the_kept_inputs_are_used():
    assert sum(SHARES.values()) == 100
    assert {path.stem for path in corpus.FOLDER.iterdir()} == set(SHARES)


def test_the_record_is_of_a_whole_campaign_without_a_crash():
    record = json.loads(RECORD.read_text())
    assert set(record["targets"]) == set(SHARES)
    assert record["executions"] >= 1_000_000
    assert record["engine"] == "atheris"
    assert record["crashes"] == 0
