// A member with Java's kafka-clients. `member_lines.py` says what it reads and prints.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/** Takes the consumer's properties as `name=value`, `topics=a,b` among them. */
public final class Member implements ConsumerRebalanceListener {
    private final TreeSet<TopicPartition> owned = new TreeSet<>(
        (a, b) -> a.topic().equals(b.topic())
            ? Integer.compare(a.partition(), b.partition())
            : a.topic().compareTo(b.topic()));

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        List<String> topics = List.of(((String) properties.remove("topics")).split(","));
        new Member().run(properties, topics);
    }

    private void run(Properties properties, List<String> topics) throws Exception {
        ConcurrentLinkedQueue<String> orders = new ConcurrentLinkedQueue<>();
        Thread reader = new Thread(() -> read(orders));
        reader.setDaemon(true);
        reader.start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            consumer.subscribe(topics, this);
            for (String order = orders.poll(); !"leave".equals(order); order = orders.poll()) {
                if ("commit".equals(order) && !commit(consumer)) {
                    orders.add(order);
                }
                consumer.poll(Duration.ofMillis(100));
            }
        }
    }

    private static void read(Collection<String> orders) {
        new BufferedReader(new InputStreamReader(System.in)).lines().map(String::strip).forEach(orders::add);
        orders.add("leave");
    }

    private boolean commit(KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        owned.forEach(it -> offsets.put(it, new OffsetAndMetadata(10 + it.partition())));
        try {
            consumer.commitSync(offsets);
        } catch (CommitFailedException | RebalanceInProgressException error) {
            System.err.println(error);
            return false;
        }
        print("committed", "offsets", owned.stream()
            .map(it -> "[\"" + it.topic() + "\"," + it.partition() + "," + (10 + it.partition()) + "]"));
        return true;
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        owned.removeAll(partitions);
        printOwned();
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        owned.addAll(partitions);
        printOwned();
    }

    private void printOwned() {
        print("owned", "partitions",
            owned.stream().map(it -> "[\"" + it.topic() + "\"," + it.partition() + "]"));
    }

    private static void print(String event, String name, java.util.stream.Stream<String> items) {
        String list = items.collect(Collectors.joining(",", "[", "]"));
        System.out.println("{\"event\":\"" + event + "\",\"" + name + "\":" + list + "}");
        System.out.flush();
    }
}
