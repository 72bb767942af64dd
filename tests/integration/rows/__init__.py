"""Sources and sinks against real nodes and stores, without Spark or with it."""
