"""Addresses for Kafka's clients: what they are told is an address to connect to."""

from __future__ import annotations

import pytest

from coordinator.cli.supervisor import flags_of
from coordinator.settings import InvalidSetting, Settings


def test_there_is_no_listener_unless_it_is_asked_for():
    assert Settings().kafka.kafka_address is None
    assert Settings().kafka.kafka_advertised_address is None


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "*", "0", "[::0]", "[0:0:0:0:0:0:0:0]"])
def test_a_wildcard_is_listened_at_and_not_told(host):
    with pytest.raises(InvalidSetting, match=r"kafka_advertise the HOST:PORT"):
        Settings.of(kafka_listen=f"{host}:9092")
    with pytest.raises(InvalidSetting, match=r"cannot connect to"):
        Settings.of(kafka_listen=f"{host}:9092", kafka_advertise=f"{host}:9092")
    settings = Settings.of(kafka_listen=f"{host}:9092", kafka_advertise="kafka.example.com:19092")
    assert settings.kafka.kafka_advertised_address == ("kafka.example.com", 19_092)


def test_the_address_of_the_listener_is_told_if_no_other_is_given():
    settings = Settings.of(kafka_listen="10.0.0.7:9092").kafka
    assert settings.kafka_advertised_address == settings.kafka_address == ("10.0.0.7", 9_092)


def test_each_node_of_a_machine_has_ports_of_its_own():
    settings = Settings.of(
        kafka_listen="127.0.0.1:9092", kafka_advertise="here:19092", nodes=3, data_dir="d"
    )
    flags = flags_of(settings, 3)
    found = dict(zip(flags[::2], flags[1::2], strict=True))
    assert found["--kafka-listen"] == "127.0.0.1:9112"
    assert found["--kafka-advertise"] == "here:19112"
    with pytest.raises(InvalidSetting, match="kafka_listen has port 0"):
        flags_of(Settings.of(kafka_listen="127.0.0.1:0", nodes=2), 1)
