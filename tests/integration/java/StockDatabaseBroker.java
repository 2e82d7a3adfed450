import java.io.File;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.store.jdbc.JDBCPersistenceAdapter;
import org.postgresql.ds.PGSimpleDataSource;

/**
 * A stock ActiveMQ with its store and its default lock in PostgreSQL: StockDatabaseBroker JDBC-URL DIRECTORY STOMP-PORT.
 * With two more arguments, OPENWIRE-PORT SCHEDULER-DIRECTORY, it has an OpenWire connector and schedules.
 * It prints "listening" once it serves; kill it for a crash. A second one on the same database waits as the slave.
 */
public final class StockDatabaseBroker {

    public static void main(String[] arguments) throws Exception {
        var database = new PGSimpleDataSource();
        database.setURL(arguments[0]);
        var store = new JDBCPersistenceAdapter();
        store.setDataSource(database);
        store.setLockKeepAlivePeriod(1000);
        var broker = new BrokerService();
        broker.setBrokerName("stock");
        broker.setUseJmx(false);
        broker.setUseShutdownHook(false);
        broker.setSchedulerSupport(arguments.length > 3);
        broker.setDataDirectoryFile(new File(arguments[1]));
        broker.setPersistenceAdapter(store);
        broker.addConnector("stomp://127.0.0.1:" + arguments[2]);
        if (arguments.length > 3) {
            broker.addConnector("tcp://127.0.0.1:" + arguments[3]);
            broker.setSchedulerDirectoryFile(new File(arguments[4]));
        }
        broker.start();
        broker.waitUntilStarted();
        System.out.println("listening");
        System.out.flush();
        Thread.currentThread().join();
    }
}
