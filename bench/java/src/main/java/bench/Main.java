package bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.http.apache.ApacheHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;

/** Drives a lock library by the lines that bench/drive/doc.go describes. Arguments: subject, URL, table, TTL in milliseconds. */
public final class Main {
    /** What another holder's lock is. */
    static final class Held extends Exception {}

    /** What the library does not have. */
    static final class Unsupported extends Exception {}

    /** A library as one process would use it. */
    interface Client {
        void acquire(String lock) throws Exception;

        void attempt(String lock) throws Exception;

        void renew(String lock) throws Exception;

        void release(String lock) throws Exception;

        void deliver(String job, long occurrence) throws Exception;
    }

    interface Library {
        Client open();
    }

    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final ExecutorService WORK = Executors.newCachedThreadPool();

    private Main() {}

    public static void main(String[] args) throws Exception {
        DynamoDbClient db = DynamoDbClient.builder()
            .endpointOverride(URI.create(args[1]))
            .region(Region.EU_WEST_1)
            .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("test", "test")))
            .httpClientBuilder(ApacheHttpClient.builder().maxConnections(256))
            .build();
        Duration ttl = Duration.ofMillis(Long.parseLong(args[3]));
        Library library = switch (args[0]) {
            case "amazon-lock-client" -> () -> new AmazonLock(db, args[2], ttl);
            case "shedlock" -> () -> new ShedLock(db, args[2], ttl);
            default -> throw new IllegalArgumentException("there is no driver for " + args[0]);
        };
        say("ready " + (args[0].equals("shedlock")
            ? "net.javacrumbs.shedlock:shedlock-provider-dynamodb2 4.42.0"
            : "com.amazonaws:dynamodb-lock-client 1.4.0"));
        serve(library);
        System.exit(0);
    }

    private static void serve(Library library) throws Exception {
        Map<String, Client> clients = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            Client client = clients.computeIfAbsent(words[2], name -> library.open());
            WORK.execute(() -> run(client, words));
        }
    }

    private static void run(Client client, String[] words) {
        long began = System.nanoTime();
        String answer = "ok";
        String text = "";
        try {
            perform(client, words);
        } catch (Held e) {
            answer = "held";
        } catch (Unsupported e) {
            answer = "no";
        } catch (Exception e) {
            answer = "error";
            text = " " + String.valueOf(e).replace('\n', ' ');
        }
        say(words[0] + " " + answer + " " + (System.nanoTime() - began) + text);
    }

    private static void perform(Client client, String[] words) throws Exception {
        switch (words[1]) {
            case "open" -> {}
            case "acquire" -> client.acquire(words[3]);
            case "try" -> client.attempt(words[3]);
            case "renew" -> client.renew(words[3]);
            case "release" -> client.release(words[3]);
            case "deliver" -> client.deliver(words[3], Long.parseLong(words[4]));
            default -> throw new IllegalArgumentException("there is no operation " + words[1]);
        }
    }

    private static void say(String line) {
        synchronized (OUT) {
            OUT.println(line);
        }
    }
}
