package bench;

import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.dynamodb2.DynamoDBLockProvider;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;

/** ShedLock on DynamoDB. It waits for nobody, and its provider for DynamoDB extends no lock. */
final class ShedLock implements Main.Client {
    private final DynamoDBLockProvider provider;
    private final Duration ttl;
    private final Map<String, SimpleLock> held = new ConcurrentHashMap<>();

    ShedLock(DynamoDbClient db, String table, Duration ttl) {
        this.provider = new DynamoDBLockProvider(db, table);
        this.ttl = ttl;
    }

    private SimpleLock lock(String name, Duration atLeast) throws Main.Held {
        return provider.lock(new LockConfiguration(Instant.now(), name, ttl, atLeast)).orElseThrow(Main.Held::new);
    }

    @Override
    public void acquire(String lock) throws Exception {
        throw new Main.Unsupported();
    }

    @Override
    public void attempt(String lock) throws Exception {
        held.put(lock, lock(lock, Duration.ZERO));
    }

    @Override
    public void renew(String lock) throws Exception {
        throw new Main.Unsupported();
    }

    @Override
    public void release(String lock) {
        held.remove(lock).unlock();
    }

    /** The library's way to run a job once: it keeps the lock for lockAtLeastFor, however short the job. */
    @Override
    public void deliver(String job, long occurrence) throws Exception {
        lock(job, ttl).unlock();
    }
}
