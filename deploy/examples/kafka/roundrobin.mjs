// An assigner for kafkajs that other clients share a group with.
//
// The members of a group have to offer an assignor of one name. kafkajs calls its own
// `RoundRobinAssigner`, which no other client has; this one is called `roundrobin` and does what
// the assignors of that name do elsewhere: partitions in the order of topic and number, dealt in
// turn to the members that subscribe to the topic.
import kafkajs from "kafkajs";

const { MemberAssignment, MemberMetadata } = kafkajs.AssignerProtocol;

export const roundrobin = ({ cluster }) => ({
  name: "roundrobin",
  version: 0,

  async assign({ members }) {
    const subscribed = members
      .map(({ memberId, memberMetadata }) => ({
        memberId,
        topics: new Set(MemberMetadata.decode(memberMetadata).topics),
        assignment: {},
      }))
      .sort((a, b) => (a.memberId < b.memberId ? -1 : 1));
    const topics = [...new Set(subscribed.flatMap((it) => [...it.topics]))].sort();
    // Topics that only other members subscribe to are not in this client's metadata yet.
    await Promise.all(topics.map((topic) => cluster.addTargetTopic(topic)));
    let next = 0;
    for (const topic of topics) {
      const numbers = cluster.findTopicPartitionMetadata(topic).map((it) => it.partitionId);
      for (const number of numbers.sort((a, b) => a - b)) {
        while (!subscribed[next % subscribed.length].topics.has(topic)) next += 1;
        const { assignment } = subscribed[next % subscribed.length];
        (assignment[topic] ??= []).push(number);
        next += 1;
      }
    }
    return subscribed.map(({ memberId, assignment }) => ({
      memberId,
      memberAssignment: MemberAssignment.encode({ version: 0, assignment }),
    }));
  },

  protocol: ({ topics }) => ({
    name: "roundrobin",
    metadata: MemberMetadata.encode({ version: 0, topics }),
  }),
});
