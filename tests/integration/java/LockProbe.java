import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.store.SharedFileLocker;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

/**
 * Takes the lock of a store as the stock ActiveMQ does: LockProbe try|wait|broker DIRECTORY.
 *
 * "try" asks its locker once and prints "held" or "refused"; "wait" waits with the locker; "broker" starts a whole
 * BrokerService with KahaDB, which watches its lock (lockKeepAlivePeriod) and prints "stopped" when it has stopped.
 * All print "waiting" first and "held" once they are master. Each line of standard input is answered by
 * "ours" or "lost", the locker's own view of its lock; at the end of standard input the lock is released and the
 * program ends.
 */
public final class LockProbe {

    private static final long POLL_MILLIS = 50;
    private static final long KEEP_ALIVE_MILLIS = 100;

    public static void main(String[] arguments) throws Exception {
        String kind = arguments[0];
        var store = new KahaDBPersistenceAdapter();
        store.setDirectory(new File(arguments[1]));
        store.setLockKeepAlivePeriod(KEEP_ALIVE_MILLIS);
        var locker = new SharedFileLocker();
        locker.setLockAcquireSleepInterval(POLL_MILLIS);
        locker.setFailIfLocked(kind.equals("try"));
        store.setLocker(locker);
        report("waiting");
        if (kind.equals("broker")) {
            serve(store);
        } else {
            lock(locker);
        }
        var commands = new BufferedReader(new InputStreamReader(System.in));
        while (commands.readLine() != null) {
            report(locker.keepAlive() ? "ours" : "lost");
        }
        locker.stop();
        System.exit(0);
    }

    private static void lock(SharedFileLocker locker) throws Exception {
        try {
            locker.start();
            report("held");
        } catch (IOException taken) {
            report("refused");
        }
    }

    private static void serve(KahaDBPersistenceAdapter store) throws Exception {
        var broker = new BrokerService();
        broker.setUseJmx(false);
        broker.setUseShutdownHook(false);
        broker.setPersistenceAdapter(store);
        broker.addShutdownHook(() -> report("stopped"));
        broker.start();
        broker.waitUntilStarted();
        report("held");
    }

    private static void report(String word) {
        System.out.println(word);
        System.out.flush();
    }
}
