import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Producers of the official client, driven by one line a command on standard input. Each command is answered by one
 * line: "ok" with what was asked for, or "error" with the exceptions from the outermost to the cause.
 *
 * <pre>
 * set KEY VALUE                            a setting of the producers that are opened from then on
 * open NAME BOOTSTRAP [TRANSACTIONAL_ID]    pair NAME               "ok PRODUCER_ID EPOCH", -1 -1 while there is none
 * init NAME                                 begin NAME
 * offsets NAME GROUP                        partition NAME TOPIC    the second without metadata of the topic
 * commit NAME                               abort NAME              close NAME
 * </pre>
 */
public final class TransactionalWitness {
    private static final int MAX_BLOCK_MS = 20_000;
    private static final int REQUEST_TIMEOUT_MS = 5_000;

    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<String, String> settings = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        TransactionalWitness witness = new TransactionalWitness();
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(witness.answer(line.split(" ")));
        }
        // Threads of producers that nobody closed must not keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] words) {
        try {
            return run(words[0], words[1], words);
        } catch (Exception error) {
            StringBuilder told = new StringBuilder("error");
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                told.append(' ').append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage());
            }
            return told.toString().replace('\n', ' ');
        }
    }

    @SuppressWarnings("removal") // The way to make a ConsumerGroupMetadata without a consumer.
    private String run(String command, String name, String[] words) throws ReflectiveOperationException {
        if (command.equals("set")) {
            settings.put(name, String.join(" ", Arrays.asList(words).subList(2, words.length)));
            return "ok";
        }
        if (command.equals("open")) {
            producers.put(name, open(words[2], words.length > 3 ? words[3] : null));
            return "ok";
        }
        KafkaProducer<byte[], byte[]> producer = producers.get(name);
        switch (command) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "offsets" -> producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition("consumed", 0), new OffsetAndMetadata(1)),
                    new ConsumerGroupMetadata(words[2]));
            case "partition" -> addPartition(producer, words[2]);
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "pair" -> {
                return "ok " + pair(producer);
            }
            case "close" -> producers.remove(name).close(Duration.ZERO);
            default -> throw new IllegalArgumentException("no command " + command);
        }
        return "ok";
    }

    private KafkaProducer<byte[], byte[]> open(String bootstrap, String transactionalId) {
        Properties settings = new Properties();
        settings.putAll(this.settings);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        settings.put("max.block.ms", MAX_BLOCK_MS);
        settings.put("request.timeout.ms", REQUEST_TIMEOUT_MS);
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(settings);
    }

    private static Object manager(KafkaProducer<byte[], byte[]> producer) throws ReflectiveOperationException {
        return field(producer, "transactionManager");
    }

    /**
     * As send() does before it sends, which it cannot do where no topic has a leader. A client of transaction.version 2
     * adds no partition: the record itself does.
     */
    private static void addPartition(KafkaProducer<byte[], byte[]> producer, String topic)
            throws ReflectiveOperationException {
        Object manager = manager(producer);
        Method isVersion2 = manager.getClass().getDeclaredMethod("isTransactionV2Enabled");
        isVersion2.setAccessible(true);
        if ((boolean) isVersion2.invoke(manager)) {
            producer.send(new ProducerRecord<>(topic, 0, null, new byte[1]));
            return;
        }
        Method add = manager.getClass().getDeclaredMethod("maybeAddPartition", TopicPartition.class);
        add.setAccessible(true);
        add.invoke(manager, new TopicPartition(topic, 0));
    }

    private static String pair(KafkaProducer<byte[], byte[]> producer) throws ReflectiveOperationException {
        Object pair = field(manager(producer), "producerIdAndEpoch");
        return field(pair, "producerId") + " " + field(pair, "epoch");
    }

    private static Object field(Object owner, String name) throws ReflectiveOperationException {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }
}
