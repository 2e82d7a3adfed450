import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.Locker;
import org.apache.activemq.store.jdbc.DefaultDatabaseLocker;
import org.apache.activemq.store.jdbc.JDBCPersistenceAdapter;
import org.apache.activemq.store.jdbc.LeaseDatabaseLocker;
import org.apache.activemq.store.jdbc.adapter.PostgresqlJDBCAdapter;
import org.postgresql.ds.PGSimpleDataSource;

/**
 * A stock ActiveMQ on a database: DatabaseLockProbe row|lease JDBC-URL USER PASSWORD LEASE-MILLIS. It prints "waiting",
 * then "held" once it is master, and "stopped" when it has stopped itself. Each line of standard input is answered by "ours"
 * or "lost", its locker's own view; at the end of standard input it stops in order.
 */
public final class DatabaseLockProbe {

    public static void main(String[] arguments) throws Exception {
        var source = new PGSimpleDataSource();
        source.setUrl(arguments[1]);
        source.setUser(arguments[2]);
        source.setPassword(arguments[3]);
        long lease = Long.parseLong(arguments[4]);
        var store = new JDBCPersistenceAdapter();
        store.setDataSource(source);
        store.setAdapter(new PostgresqlJDBCAdapter());
        store.setLockKeepAlivePeriod(lease / 3);
        var locker = arguments[0].equals("row") ? new DefaultDatabaseLocker() : new LeaseDatabaseLocker();
        locker.setLockAcquireSleepInterval(lease);
        store.setLocker(locker);
        var broker = new BrokerService();
        broker.setBrokerName("stock");
        broker.setUseJmx(false);
        broker.setUseShutdownHook(false);
        broker.setPersistenceAdapter(store);
        broker.addShutdownHook(() -> report("stopped"));
        report("waiting");
        broker.start();
        broker.waitUntilStarted();
        report("held");
        var commands = new BufferedReader(new InputStreamReader(System.in));
        while (commands.readLine() != null) {
            report(isOurs(locker) ? "ours" : "lost");
        }
        broker.stop();
        System.exit(0);
    }

    private static boolean isOurs(Locker locker) {
        try {
            return locker.keepAlive();
        } catch (Exception broken) {
            return false;
        }
    }

    private static void report(String word) {
        System.out.println(word);
        System.out.flush();
    }
}
