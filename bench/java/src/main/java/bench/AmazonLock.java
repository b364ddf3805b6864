package bench;

import com.amazonaws.services.dynamodbv2.AcquireLockOptions;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClient;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClientOptions;
import com.amazonaws.services.dynamodbv2.LockItem;
import com.amazonaws.services.dynamodbv2.model.LockCurrentlyUnavailableException;
import com.amazonaws.services.dynamodbv2.model.LockNotGrantedException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;

/** The Amazon DynamoDB lock client with its background heartbeat, as its README sets it up. */
final class AmazonLock implements Main.Client {
    private final AmazonDynamoDBLockClient client;
    private final Map<String, LockItem> held = new ConcurrentHashMap<>();

    AmazonLock(DynamoDbClient db, String table, Duration ttl) {
        client = new AmazonDynamoDBLockClient(AmazonDynamoDBLockClientOptions.builder(db, table)
            .withTimeUnit(TimeUnit.MILLISECONDS)
            .withLeaseDuration(ttl.toMillis())
            .withHeartbeatPeriod(ttl.toMillis() / 3)
            .withCreateHeartbeatBackgroundThread(true)
            .build());
    }

    @Override
    public void acquire(String lock) throws Exception {
        held.put(lock, client.acquireLock(AcquireLockOptions.builder(lock)
            .withTimeUnit(TimeUnit.MILLISECONDS)
            .withAdditionalTimeToWaitForLock(TimeUnit.HOURS.toMillis(1))
            .withRefreshPeriod(1000L) // the library's default
            .build()));
    }

    @Override
    public void attempt(String lock) throws Exception {
        try {
            held.put(lock, client.acquireLock(AcquireLockOptions.builder(lock).withShouldSkipBlockingWait(true).build()));
        } catch (LockCurrentlyUnavailableException | LockNotGrantedException e) {
            throw new Main.Held();
        }
    }

    @Override
    public void renew(String lock) {
        held.get(lock).sendHeartBeat();
    }

    @Override
    public void release(String lock) {
        client.releaseLock(held.remove(lock));
    }

    /** The lock around the job: nothing remembers that it ran. */
    @Override
    public void deliver(String job, long occurrence) throws Exception {
        attempt(job);
        release(job);
    }
}
