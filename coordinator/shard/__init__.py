"""The deterministic host: where group decisions and timers meet."""
