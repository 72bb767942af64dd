"""The deterministic host: where group decisions and timers meet."""

from coordinator.shard.timer_package import check_timer

check_timer()  # Here, because all that imports `timer` imports this package before.
