import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of consumer groups by the official client, driven by one line a command on standard input. Each command is
 * answered by one line: "ok" with what was asked for, or "error" with the exception.
 *
 * <pre>
 * join NAME BOOTSTRAP GROUP TOPIC SESSION_MS HEARTBEAT_MS
 * poll NAME      "ok +PARTITION ... PARTITION|OFFSET ...": what was assigned meanwhile, and what was consumed
 * commit NAME    what was polled
 * close NAME
 * </pre>
 */
public final class GroupWitness {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Duration COMMIT = Duration.ofSeconds(10);
    /** Who leaves while nobody coordinates holds up the other members here. */
    private static final Duration CLOSE = Duration.ofSeconds(1);

    private final Map<String, KafkaConsumer<byte[], byte[]>> members = new HashMap<>();
    private final Map<String, StringJoiner> told = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        GroupWitness witness = new GroupWitness();
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(witness.answer(line.split(" ")));
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] words) {
        try {
            return ("ok " + run(words[0], words[1], words)).stripTrailing();
        } catch (Exception error) {
            return ("error " + error.getClass().getSimpleName() + ": " + error.getMessage()).replace('\n', ' ');
        }
    }

    private String run(String command, String name, String[] words) {
        switch (command) {
            case "join" -> members.put(name, join(name, words));
            case "poll" -> {
                StringJoiner found = told.computeIfAbsent(name, key -> new StringJoiner(" "));
                for (ConsumerRecord<byte[], byte[]> one : members.get(name).poll(POLL)) {
                    found.add(one.partition() + "|" + one.offset());
                }
                return told.remove(name).toString();
            }
            case "commit" -> members.get(name).commitSync(COMMIT);
            case "close" -> members.remove(name).close(CloseOptions.timeout(CLOSE));
            default -> throw new IllegalArgumentException("no command " + command);
        }
        return "";
    }

    private KafkaConsumer<byte[], byte[]> join(String name, String[] words) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[2]);
        settings.put("group.id", words[3]);
        settings.put("session.timeout.ms", words[5]);
        settings.put("heartbeat.interval.ms", words[6]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(List.of(words[4]), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                StringJoiner found = told.computeIfAbsent(name, key -> new StringJoiner(" "));
                partitions.forEach(one -> found.add("+" + one.partition()));
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
        });
        return consumer;
    }
}
