// What Java's Admin client is asked of groups; the answers are printed as lines.
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** Arguments: bootstrap servers, a group with the static member `one`, a group without members. */
public final class Tools {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        String alive = arguments[1];
        String empty = arguments[2];
        TopicPartition rows = new TopicPartition("rows", 0);
        try (Admin admin = Admin.create(properties)) {
            Set<String> listed = new TreeSet<>();
            admin.listGroups().all().get().forEach(it -> listed.add(it.groupId()));
            System.out.println("listed " + listed.containsAll(List.of(alive, empty)));
            ConsumerGroupDescription described =
                admin.describeConsumerGroups(List.of(alive)).describedGroups().get(alive).get();
            System.out.println("described " + described.groupState() + " " + described.partitionAssignor()
                + " " + described.members().size() + " " + described.coordinator().port());
            admin.alterConsumerGroupOffsets(empty, Map.of(rows, new OffsetAndMetadata(7))).all().get();
            System.out.println("offsets " + new TreeMap<>(Map.of("rows", admin
                .listConsumerGroupOffsets(empty).partitionsToOffsetAndMetadata().get().get(rows).offset())));
            ListOffsetsResultInfo end =
                admin.listOffsets(Map.of(rows, OffsetSpec.earliest())).partitionResult(rows).get();
            System.out.println("earliest " + end.offset());
            admin.deleteConsumerGroupOffsets(empty, Set.of(rows)).all().get();
            System.out.println("deleted " + admin.listConsumerGroupOffsets(empty)
                .partitionsToOffsetAndMetadata().get().get(rows));
            admin.removeMembersFromConsumerGroup(alive, new RemoveMembersFromConsumerGroupOptions(
                List.of(new MemberToRemove("one")))).all().get();
            System.out.println("removed");
            admin.alterConsumerGroupOffsets(empty, Map.of(rows, new OffsetAndMetadata(7))).all().get();
            admin.deleteConsumerGroups(List.of(empty)).all().get();
            System.out.println("deleted group");
            System.out.println("topics " + admin.describeTopics(List.of("rows"))
                .topicNameValues().get("rows").get().partitions().size());
            System.out.println("nodes " + admin.describeCluster().nodes().get().size());
        }
    }
}
