"""The topic and the orders that all cases speak of."""

from coordinator.v1 import session_pb2 as pb

TOPIC = "t"
ACTIVE, WARM, DRAIN, LOST = (
    pb.Wanted.ACTIVE,
    pb.Wanted.WARM,
    pb.Wanted.DRAIN,
    pb.Wanted.LOST,
)
