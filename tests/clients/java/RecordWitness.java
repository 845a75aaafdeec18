import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Records written and read by the official client, driven by one line a command on standard input. Each command is
 * answered by one line: "ok" with what was asked for, or "error" with the exceptions from the outermost to the cause.
 *
 * <pre>
 * open NAME BOOTSTRAP COMPRESSION TRANSACTIONAL_ID   the last is - for an idempotent producer
 * send NAME TOPIC PARTITION TIMESTAMP KEY VALUE HEADER_KEY HEADER_VALUE
 * flush NAME                               "ok OFFSET ...", of what was sent since the last flush, in its order
 * init NAME      begin NAME      commit NAME      abort NAME      close NAME
 * offsets NAME GROUP TOPIC OFFSET          of partition 0, within the transaction
 * pair NAME                                "ok PRODUCER_ID EPOCH"
 * set KEY VALUE                            a setting of the producers that are opened from then on
 * read ISOLATION_LEVEL BOOTSTRAP TOPIC PARTITIONS
 *     "ok PARTITION|OFFSET|TIMESTAMP|KEY|VALUE|HEADER_KEY|HEADER_VALUE ...", up to the end that there is at first
 * </pre>
 */
public final class RecordWitness {
    private static final int MAX_BLOCK_MS = 20_000;
    private static final int REQUEST_TIMEOUT_MS = 5_000;
    private static final int DELIVERY_TIMEOUT_MS = 20_000;
    private static final int LINGER_MS = 5;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final int READ_SECONDS = 30;

    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    private final Map<String, List<Future<RecordMetadata>>> sent = new HashMap<>();
    private final Map<String, String> settings = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        RecordWitness witness = new RecordWitness();
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(witness.answer(line.split(" ")));
        }
        // Threads of producers that nobody closed must not keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] words) {
        try {
            return ("ok " + run(words[0], words[1], words)).stripTrailing();
        } catch (Exception error) {
            StringBuilder told = new StringBuilder("error");
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                told.append(' ').append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage());
            }
            return told.toString().replace('\n', ' ');
        }
    }

    @SuppressWarnings("removal") // The way to make a ConsumerGroupMetadata without a consumer.
    private String run(String command, String name, String[] words) throws Exception {
        switch (command) {
            case "open" -> producers.put(name, open(words[2], words[3], words[4]));
            case "read" -> {
                return read(name, words[2], words[3], Integer.parseInt(words[4]));
            }
            case "send" -> sent.computeIfAbsent(name, key -> new ArrayList<>()).add(send(producers.get(name), words));
            case "flush" -> {
                return flush(producers.get(name), sent.remove(name));
            }
            case "init" -> producers.get(name).initTransactions();
            case "begin" -> producers.get(name).beginTransaction();
            case "commit" -> producers.get(name).commitTransaction();
            case "abort" -> producers.get(name).abortTransaction();
            case "offsets" -> producers.get(name).sendOffsetsToTransaction(
                    Map.of(new TopicPartition(words[3], 0), new OffsetAndMetadata(Long.parseLong(words[4]))),
                    new ConsumerGroupMetadata(words[2]));
            case "pair" -> {
                Object pair = field(field(producers.get(name), "transactionManager"), "producerIdAndEpoch");
                return field(pair, "producerId") + " " + field(pair, "epoch");
            }
            case "set" -> settings.put(name, words[2]);
            case "close" -> producers.remove(name).close(Duration.ZERO);
            default -> throw new IllegalArgumentException("no command " + command);
        }
        return "";
    }

    private KafkaProducer<String, String> open(String bootstrap, String compression, String transactionalId) {
        Properties settings = new Properties();
        settings.putAll(this.settings);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("compression.type", compression);
        settings.put("max.block.ms", MAX_BLOCK_MS);
        settings.put("request.timeout.ms", REQUEST_TIMEOUT_MS);
        settings.put("delivery.timeout.ms", DELIVERY_TIMEOUT_MS);
        settings.put("linger.ms", LINGER_MS);
        if (!transactionalId.equals("-")) {
            settings.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(settings);
    }

    private static Object field(Object owner, String name) throws ReflectiveOperationException {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }

    private static Future<RecordMetadata> send(KafkaProducer<String, String> producer, String[] words) {
        ProducerRecord<String, String> one = new ProducerRecord<>(
                words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]), words[5], words[6]);
        one.headers().add(words[7], words[8].getBytes(StandardCharsets.UTF_8));
        return producer.send(one);
    }

    private static String flush(KafkaProducer<String, String> producer, List<Future<RecordMetadata>> sent)
            throws ExecutionException, InterruptedException {
        producer.flush();
        StringBuilder offsets = new StringBuilder();
        for (Future<RecordMetadata> one : sent) {
            offsets.append(one.get().offset()).append(' ');
        }
        return offsets.toString();
    }

    private static String read(String level, String bootstrap, String topic, int count) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("isolation.level", level);
        settings.put("enable.auto.commit", "false");
        StringBuilder found = new StringBuilder();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> partitions =
                    IntStream.range(0, count).mapToObj(one -> new TopicPartition(topic, one)).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long deadline = System.nanoTime() + READ_SECONDS * 1_000_000_000L;
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("not read within " + READ_SECONDS + " s: up to " + ends);
                }
                consumer.poll(POLL).forEach(one -> found.append(told(one)).append(' '));
            }
        }
        return found.toString();
    }

    private static String told(ConsumerRecord<String, String> one) {
        Header header = one.headers().iterator().next();
        return String.join("|", String.valueOf(one.partition()), String.valueOf(one.offset()),
                String.valueOf(one.timestamp()), one.key(), one.value(), header.key(),
                new String(header.value(), StandardCharsets.UTF_8));
    }
}
