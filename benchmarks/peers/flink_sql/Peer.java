import static org.apache.flink.table.api.Expressions.$;
import static org.apache.flink.table.api.Expressions.lit;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableException;
import org.apache.flink.table.api.ValidationException;
import org.apache.flink.table.expressions.Expression;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;

/**
 * Flink SQL as a peer: one JVM that takes a query a line, in streaming mode over a bounded backlog.
 *
 * <p>A line is: how many runs are timed, the folder for checkpoints, the file of SQL, and the file for the
 * result's rows (or nothing), with tabs between them. The SQL is statements that end with a semicolon at the
 * end of a line; the last is the query. The answer is a line of JSON.
 */
public final class Peer {
  private static final int CORES = 2;

  public static void main(String[] arguments) throws Exception {
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] asked = line.split("\t", -1);
      String sql = Files.readString(Path.of(asked[2]));
      System.out.println("ANSWER " + answer(Integer.parseInt(asked[0]), asked[1], sql, asked[3]));
      System.out.flush();
    }
    System.exit(0);
  }

  private static String answer(int runs, String folder, String sql, String rows) {
    StringBuilder seconds = new StringBuilder();
    String refused = "";
    String failed = "";
    try {
      for (int run = 0; run < runs; run++) {
        Table result = query(folder + "/" + run, sql);
        long started = System.nanoTime();
        result.executeInsert(TableDescriptor.forConnector("blackhole").build()).await();
        double taken = (System.nanoTime() - started) / 1e9;
        seconds.append(run > 0 ? ", " : "").append(String.format(Locale.ROOT, "%.3f", taken));
      }
      if (!rows.isEmpty()) {
        writeRows(query(folder + "/rows", sql), Path.of(rows));
      }
    } catch (ValidationException | TableException error) {
      refused = firstLine(error);
    } catch (Exception error) {
      failed = firstLine(error);
    }
    return String.format(
        "{\"seconds\": [%s], \"refused\": %s, \"failed\": %s}", seconds, json(refused), json(failed));
  }

  /** A session of its own, whose state is in RocksDB and whose checkpoints are exactly once, on disk. */
  private static Table query(String folder, String sql) throws Exception {
    Files.createDirectories(Path.of(folder));
    Map<String, String> settings = new HashMap<>();
    settings.put("parallelism.default", String.valueOf(CORES));
    settings.put("state.backend.type", "rocksdb");
    settings.put("execution.checkpointing.incremental", "true");
    settings.put("execution.checkpointing.interval", "10 s");
    settings.put("execution.checkpointing.mode", "EXACTLY_ONCE");
    settings.put("execution.checkpointing.dir", "file://" + folder);
    settings.put("execution.checkpointing.storage", "filesystem");
    settings.put("io.tmp.dirs", folder);
    settings.put("taskmanager.memory.managed.size", "1g");
    settings.put("table.local-time-zone", "UTC");
    TableEnvironment environment =
        TableEnvironment.create(
            EnvironmentSettings.newInstance()
                .inStreamingMode()
                .withConfiguration(Configuration.fromMap(settings))
                .build());
    String[] statements = sql.strip().split(";\\s*\n");
    for (int number = 0; number < statements.length - 1; number++) {
      environment.executeSql(statements[number]);
    }
    return environment.sqlQuery(statements[statements.length - 1]);
  }

  /**
   * What is left of the changes in the end, a line a row.
   *
   * <p>Flink leaves out the old row of an update where it knows a key. So rows are counted: then the row
   * itself is the key.
   */
  private static void writeRows(Table result, Path path) throws Exception {
    List<Expression> columns = new ArrayList<>();
    for (String name : result.getResolvedSchema().getColumnNames()) {
      columns.add($(name));
    }
    Expression[] key = columns.toArray(new Expression[0]);
    columns.add(lit(1L).count());
    Table counted = result.groupBy(key).select(columns.toArray(new Expression[0]));
    Map<String, Long> copies = new HashMap<>();
    try (CloseableIterator<Row> changes = counted.execute().collect()) {
      while (changes.hasNext()) {
        Row row = changes.next();
        if (row.getKind() == RowKind.DELETE) {
          copies.remove(text(row, key.length));
        } else {
          copies.put(text(row, key.length), (Long) row.getField(key.length));
        }
      }
    }
    try (BufferedWriter file = Files.newBufferedWriter(path)) {
      for (Map.Entry<String, Long> one : copies.entrySet()) {
        for (long copy = 0; copy < one.getValue(); copy++) {
          file.write(one.getKey());
          file.newLine();
        }
      }
    }
  }

  private static String text(Row row, int columns) {
    StringBuilder cells = new StringBuilder("[");
    for (int place = 0; place < columns; place++) {
      cells.append(place > 0 ? ", " : "").append(cell(row.getField(place)));
    }
    return cells.append("]").toString();
  }

  private static String cell(Object value) {
    if (value instanceof Instant time) {
      return String.valueOf(time.toEpochMilli());
    }
    if (value instanceof LocalDateTime time) {
      return String.valueOf(time.toInstant(ZoneOffset.UTC).toEpochMilli());
    }
    return value == null || value instanceof Number ? String.valueOf(value) : json(value.toString());
  }

  private static String firstLine(Throwable error) {
    Throwable cause = error;
    while (cause.getCause() != null) {
      cause = cause.getCause();
    }
    return String.valueOf(cause.getMessage()).strip().split("\n")[0];
  }

  private static String json(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char letter : text.toCharArray()) {
      if (letter == '"' || letter == '\\') {
        quoted.append('\\').append(letter);
      } else if (letter < ' ') {
        quoted.append(String.format("\\u%04x", (int) letter));
      } else {
        quoted.append(letter);
      }
    }
    return quoted.append('"').toString();
  }

  private Peer() {}
}
