/*
 * Kafka's own classes for records and partitions, asked over standard input and output.
 *
 *   write        prints the vectors: every case in every magic and codec, as one JSON object a line
 *   read         for each line "magic codec hex" that comes in, prints what Kafka reads of it: the records and, decompressed, their bytes
 *   place        for each line "partitions hex" that comes in, prints the partition of that key
 *   weigh        for each line of queues' lengths, prints the table that adaptive partitioning makes of them
 *
 * Run by generate.py and by tests/integration/test_java_vectors.py; no build: java -cp '<folder of jars>/*' KafkaVectors.java write
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;

public final class KafkaVectors {
    private static final long NOW = 1_700_000_000_000L;
    private static final long APPENDED = NOW + 86_400_000L;
    private static final int LARGE = 9_000; // tens of bytes: more than one block of Snappy and of LZ4
    private static final HexFormat HEX = HexFormat.of();

    private record Row(long timestamp, byte[] key, byte[] value, Header... headers) {}

    private record Case(long baseOffset, boolean isLogAppendTime, List<Row> rows) {
        Case(Row... rows) {
            this(0, false, List.of(rows));
        }
    }

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "write" -> write();
            case "read" -> read();
            case "place" -> place();
            case "weigh" -> weigh();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    // partitions

    private static void place() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            System.out.println(BuiltInPartitioner.partitionForKey(HEX.parseHex(words[1]), Integer.parseInt(words[0])));
        }
    }

    private static void weigh() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int[] queues = Arrays.stream(line.split(" ")).mapToInt(Integer::parseInt).toArray();
            new BuiltInPartitioner(new LogContext(), "t", 1).updatePartitionLoadStats(queues, new int[queues.length], queues.length);
            System.out.println(Arrays.toString(queues)); // the table is made in the place of the queues, if one is made
        }
    }

    // write

    private static Map<String, Case> cases() {
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("empty batch", new Case());
        cases.put("one", new Case(new Row(NOW, bytes("key"), bytes("value"))));
        cases.put("null key", new Case(new Row(NOW, null, bytes("no key")), new Row(NOW, bytes(""), bytes("an empty key"))));
        cases.put("null value", new Case(new Row(NOW, bytes("a tombstone"), null), new Row(NOW, bytes("nothing in it"), bytes(""))));
        cases.put("null both", new Case(new Row(NOW, null, null)));
        cases.put("headers", new Case(
            new Row(NOW, bytes("k"), bytes("v"), header("name", bytes("value")), header("none", null), header("", bytes(""))),
            new Row(NOW, bytes("k"), bytes("v"), header("a", bytes("1")), header("\u2603\u017c", bytes("2")), header("a", bytes("3")))));
        cases.put("negative delta", new Case(
            new Row(NOW, bytes("a"), bytes("now")), new Row(NOW - 5, bytes("b"), bytes("just before")),
            new Row(NOW + 3_600_000, bytes("c"), bytes("later")), new Row(NOW - 40_000_000_000L, bytes("d"), bytes("long before"))));
        cases.put("no timestamp", new Case(new Row(RecordBatch.NO_TIMESTAMP, bytes("k"), bytes("v"))));
        List<Row> many = new ArrayList<>();
        for (int i = 0; i < 130; i++)
            many.add(new Row(NOW + i * 7L % 50, i % 5 == 0 ? null : bytes("key-" + i % 11), bytes("v".repeat(i % 17) + i)));
        cases.put("many", new Case(0, false, many));
        cases.put("large", new Case(new Row(NOW, bytes("k".repeat(200)), bytes("0123456789".repeat(LARGE)))));
        List<Row> three = many.subList(0, 3);
        cases.put("at an offset", new Case(7_000_000_000L, false, three));
        cases.put("log append time", new Case(40, true, three));
        return cases;
    }

    private static void write() {
        for (Map.Entry<String, Case> entry : cases().entrySet())
            System.out.println(asJson(entry.getKey(), entry.getValue()));
        for (int magic = 0; magic <= 2; magic++)
            for (CompressionType type : CompressionType.values())
                for (Map.Entry<String, Case> entry : cases().entrySet())
                    writeOne((byte) magic, type, entry.getKey(), entry.getValue());
        writeControl("commit marker", ControlRecordType.COMMIT);
        writeControl("abort marker", ControlRecordType.ABORT);
        ByteBuffer emptied = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(emptied, (byte) 2, 77, (short) 3, 12, 500, 509, 4, TimestampType.CREATE_TIME, NOW, false, false);
        print(2, "none", "emptied by compaction", "hex", HEX.formatHex(emptied.array()));
    }

    private static void writeOne(byte magic, CompressionType type, String name, Case one) {
        if (one.isLogAppendTime && magic == 0)
            return; // it has no timestamps, and its builder looks the other way
        if (name.equals("large") && type == CompressionType.NONE)
            return; // it shows the blocks of the codecs
        try {
            TimestampType stamp = one.isLogAppendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
            long appended = one.isLogAppendTime ? APPENDED : RecordBatch.NO_TIMESTAMP;
            Compression codec = Compression.of(type).build();
            MemoryRecordsBuilder builder =
                MemoryRecords.builder(ByteBuffer.allocate(512), magic, codec, stamp, one.baseOffset, appended);
            for (Row row : one.rows)
                builder.append(row.timestamp, row.key, row.value, row.headers);
            print(magic, type.name, name, "hex", hex(builder.build().buffer()));
        } catch (IllegalArgumentException error) {
            print(magic, type.name, name, "refused", error.getMessage());
        }
    }

    private static void writeControl(String name, ControlRecordType type) {
        EndTransactionMarker marker = new EndTransactionMarker(type, 21);
        MemoryRecords records = MemoryRecords.withEndTransactionMarker(9, NOW, 4, 77, (short) 3, marker);
        print(2, "none", name, "hex", hex(records.buffer()));
    }

    private static void print(int magic, String codec, String name, String what, String told) {
        System.out.printf("{\"magic\": %d, \"codec\": \"%s\", \"case\": \"%s\", \"%s\": \"%s\"}%n", magic, codec, name, what, told);
    }

    private static String asJson(String name, Case one) {
        List<String> rows = new ArrayList<>();
        for (Row row : one.rows) {
            List<String> headers = new ArrayList<>();
            for (Header header : row.headers)
                headers.add("[" + quoted(bytes(header.key())) + ", " + quoted(header.value()) + "]");
            rows.add("[" + row.timestamp + ", " + quoted(row.key) + ", " + quoted(row.value) + ", [" + String.join(", ", headers) + "]]");
        }
        long appended = one.isLogAppendTime ? APPENDED : RecordBatch.NO_TIMESTAMP;
        return "{\"case\": \"" + name + "\", \"base_offset\": " + one.baseOffset + ", \"log_append_time\": " + appended
            + ", \"records\": [" + String.join(", ", rows) + "]}";
    }

    // read

    private static void read() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            try {
                System.out.println(readOne(Byte.parseByte(words[0]), CompressionType.forName(words[1]), HEX.parseHex(words[2])));
            } catch (RuntimeException error) {
                System.out.println("{\"refused\": \"" + error.toString().replace('"', '\'').replace('\n', ' ') + "\"}");
            }
        }
    }

    private static String readOne(byte magic, CompressionType type, byte[] raw) throws Exception {
        List<String> rows = new ArrayList<>();
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(raw)).batches()) {
            batch.ensureValid();
            if (batch.magic() != magic || batch.compressionType() != type)
                throw new IllegalStateException("magic " + batch.magic() + ", " + batch.compressionType());
            for (Record record : batch) {
                record.ensureValid();
                List<String> headers = new ArrayList<>();
                for (Header header : record.headers())
                    headers.add("[" + quoted(bytes(header.key())) + ", " + quoted(header.value()) + "]");
                rows.add("[" + record.offset() + ", " + record.timestamp() + ", " + quoted(record.key()) + ", " + quoted(record.value())
                    + ", [" + String.join(", ", headers) + "]]");
            }
        }
        return "{\"records\": [" + String.join(", ", rows) + "], \"area\": \"" + HEX.formatHex(area(magic, type, raw)) + "\"}";
    }

    /** What was compressed, or would have been. */
    private static byte[] area(byte magic, CompressionType type, byte[] raw) throws Exception {
        int start = magic == 2 ? DefaultRecordBatch.RECORD_BATCH_OVERHEAD : type == CompressionType.NONE ? 0 : magic == 1 ? 34 : 26;
        ByteBuffer compressed = ByteBuffer.wrap(raw, start, raw.length - start).slice();
        return Compression.of(type).build().wrapForInput(compressed, magic, BufferSupplier.create()).readAllBytes();
    }

    // words

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static Header header(String key, byte[] value) {
        return new RecordHeader(key, value);
    }

    private static String hex(ByteBuffer buffer) {
        byte[] raw = new byte[buffer.remaining()];
        buffer.duplicate().get(raw);
        return HEX.formatHex(raw);
    }

    /** Hex; of the large value what repeats in it, and how often. */
    private static String quoted(byte[] bytes) {
        if (bytes == null)
            return "null";
        if (bytes.length == 10 * LARGE)
            return "[\"" + HEX.formatHex(bytes, 0, 10) + "\", " + LARGE + "]";
        return "\"" + HEX.formatHex(bytes) + "\"";
    }

    private static String quoted(ByteBuffer buffer) {
        return buffer == null ? "null" : quoted(HEX.parseHex(hex(buffer)));
    }
}
