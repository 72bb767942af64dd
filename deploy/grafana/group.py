"""Dashboard of one group, of those that --metrics-groups lists."""

from __future__ import annotations

from model import ON, Dashboard, Panel, Row, rate, total

OF_GROUP = 'group="$group"'
REBALANCE_SECONDS = "coordinator_group_rebalance_seconds_total"

NOW = Row(
    "$group",
    (
        Panel(
            "Members",
            "Members of the group now.",
            {"": total("coordinator_group_members", OF_GROUP)},
            kind="stat",
            width=6,
        ),
        Panel(
            "Lag",
            "Log end offset minus committed offset, of all partitions. Alert if it is large and "
            "grows: CoordinatorGroupLagGrows.",
            {"": total("coordinator_group_lag", OF_GROUP)},
            kind="stat",
            width=6,
            thresholds=(1_000, 100_000),
            none="no ends of logs are reported",
        ),
        Panel(
            "Rebalances in the last hour",
            "Rebalances that ended. `coordinator explain` tells each of them.",
            {"": f"sum(increase(coordinator_group_rebalances_total{{{ON},{OF_GROUP}}}[1h]))"},
            kind="stat",
            width=6,
            thresholds=(10, 60),
            decimals=0,
        ),
        Panel(
            "Time in rebalances in the last hour",
            "Share of the last hour that the group spent in rebalances.",
            {"": f"sum(increase({REBALANCE_SECONDS}{{{ON},{OF_GROUP}}}[1h])) / 3600"},
            unit="percentunit",
            kind="stat",
            width=6,
            thresholds=(0.05, 0.25),
        ),
    ),
)

PROGRESS = Row(
    "Progress",
    (
        Panel(
            "Lag by topic",
            "Red lines are rebalances, with their causes.",
            {"{{topic}}": total("coordinator_group_lag", OF_GROUP, by="topic")},
            width=12,
            none="no ends of logs are reported",
        ),
        Panel(
            "Lag by partition, top 20",
            "Some partitions alone: their owner is slow, `coordinator groups describe` names it. "
            "All of them: the group needs more members, or the whole of it is slow.",
            {"{{topic}} {{partition}}": f"topk(20, coordinator_group_lag{{{ON},{OF_GROUP}}})"},
            width=12,
            none="no ends of logs are reported",
        ),
        Panel(
            "Offsets committed a second",
            "How fast the committed offsets move, by topic: the rows a second that are done.",
            {"{{topic}}": rate("coordinator_group_committed_offset", OF_GROUP, by="topic")},
            unit="ops",
            width=12,
            none="nothing is committed",
        ),
        Panel(
            "Members",
            "A saw tooth is a member that comes and goes.",
            {"members": total("coordinator_group_members", OF_GROUP)},
            width=12,
        ),
    ),
)

REBALANCES = Row(
    "Rebalances",
    (
        Panel(
            "Rebalances by cause",
            "Rebalances that end in a minute.",
            {
                "{{cause}}": "60 * "
                + rate("coordinator_group_rebalances_total", OF_GROUP, by="cause")
            },
            unit="opm",
            width=12,
            none="no rebalance since the node leads the group",
        ),
        Panel(
            "Time spent in rebalances",
            "Share of the time; with an eager assignor no member works meanwhile.",
            {"share": rate(REBALANCE_SECONDS, OF_GROUP)},
            unit="percentunit",
            width=12,
            thresholds=(0.05, 0.25),
            none="no rebalance since the node leads the group",
        ),
    ),
)

GROUP = Dashboard(
    "coordinator-group",
    "Consumer groups: one group",
    "Lag, members and rebalances of one group that --metrics-groups lists.",
    (NOW, PROGRESS, REBALANCES),
    of_group=True,
)
