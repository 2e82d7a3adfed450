import java.util.ArrayList;
import java.util.List;
import javax.jms.Connection;
import javax.jms.MessageConsumer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.command.ActiveMQTempQueue;
import org.apache.activemq.openwire.OpenWireFormat;

/** Connecting, client ids, the exceptions a client meets, and what the end of a connection frees. */
public final class Connections extends Area {

    private static final String[] WRONG_SELECTORS = {
        "a =", "= 5", "a BETWEEN 1", "a = 'open", "(a = 1", "a IN ()", "a LIKE 5", "1", "a NOT", "a = 1 b = 2"
    };

    public Object negotiated() throws Exception {
        OpenWireFormat format = (OpenWireFormat) connect().getTransport().getWireFormat();
        return facts(
                "version", format.getVersion(),
                "tight", format.isTightEncodingEnabled(),
                "cache", format.isCacheEnabled(),
                "stack traces", format.isStackTraceEnabled(),
                "size prefix", !format.isSizePrefixDisabled(),
                "frame limit of 100 MiB", format.getMaxFrameSize() == 100 << 20);
    }

    public Object brokerInfo() throws Exception {
        ActiveMQConnection connection = connect();
        return facts(
                "has a name", !connection.getBrokerName().isEmpty(),
                "has an id", connection.getBrokerInfo().getBrokerId() != null,
                "fault tolerant", connection.getBrokerInfo().isFaultTolerantConfiguration());
    }

    public Object clientIdInUse() throws Exception {
        Connection first = identified("Connections");
        String second = thrown(() -> identified("Connections"));
        first.close();
        return facts("second", second, "after the first closed", thrown(() -> identified("Connections")));
    }

    public Object clientIdOfACutConnection() throws Exception {
        ActiveMQConnection first = identified("Connections.cut");
        cut(first);
        String last = "";
        for (long end = System.currentTimeMillis() + PATIENCE; System.currentTimeMillis() < end; Thread.sleep(5)) {
            last = thrown(() -> identified("Connections.cut"));
            if (last.equals("nothing")) {
                break;
            }
        }
        return last;
    }

    public Object wrongSelectors() throws Exception {
        Session session = auto(connect());
        List<Object> outcomes = new ArrayList<>();
        for (String selector : WRONG_SELECTORS) {
            outcomes.add(List.of(selector, thrown(() -> session.createConsumer(queue(), selector))));
        }
        outcomes.add(List.of("browser", thrown(() -> session.createBrowser(queue(), "a =").getEnumeration())));
        return outcomes;
    }

    public Object wrongSelectorOfADurableSubscription() throws Exception {
        Session session = auto(identified("Connections.selector"));
        return facts(
                "subscribe", thrown(() -> session.createDurableSubscriber(topic(), "s", "a =", false)),
                "nothing was made", thrown(act(() -> session.unsubscribe("s"))));
    }

    /** The session goes on after a refusal. */
    public Object refusalLeavesTheSessionUsable() throws Exception {
        Session session = auto(connect());
        String refused = thrown(() -> session.createConsumer(queue(), "a ="));
        send(session, queue(), "after");
        return facts("refused", refused, "received", take(session.createConsumer(queue()), 1));
    }

    public Object unknownTemporaryQueue() throws Exception {
        Session session = auto(connect("jms.watchTopicAdvisories=false"));
        ActiveMQTempQueue gone = new ActiveMQTempQueue("ID:nobody-1-1-1:1:1");
        return facts(
                "producer", thrown(() -> session.createProducer(gone)),
                "send", thrown(act(() -> session.createProducer(null).send(gone, session.createMessage()))));
    }

    public Object unsubscribeUnknown() throws Exception {
        Session session = auto(identified("Connections.unknown"));
        return thrown(act(() -> session.unsubscribe("never made")));
    }

    public Object useAfterClose() throws Exception {
        Connection connection = connect();
        Session session = auto(connection);
        MessageConsumer consumer = session.createConsumer(queue());
        connection.close();
        return facts(
                "session", thrown(() -> auto(connection)),
                "consumer", thrown(() -> session.createConsumer(queue())),
                "receive", thrown(consumer::receive));
    }

    public Object closeEndsAWaitingReceive() throws Exception {
        Connection connection = connect();
        MessageConsumer consumer = auto(connection).createConsumer(queue());
        Object[] received = {"still waiting"};
        Thread waiting = new Thread(() -> {
            try {
                received[0] = String.valueOf(consumer.receive());
            } catch (Exception ended) {
                received[0] = ended.getClass().getName();
            }
        });
        waiting.start();
        awaitBroker(connection);
        connection.close();
        waiting.join(PATIENCE);
        return received[0];
    }

    public Object manyConnectionsAtOnce() throws Exception {
        List<Thread> threads = new ArrayList<>();
        List<String> failures = java.util.Collections.synchronizedList(new ArrayList<>());
        for (int number = 0; number < 12; number++) {
            threads.add(new Thread(() -> failures.add(thrown(act(() -> fill(queue(), 20))))));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        long first = take(consumer, 240).stream().filter("m0"::equals).count();
        return facts("failures", failures.stream().distinct().toList(), "first messages", first, "rest", drain(consumer));
    }

    /** Sessions of one connection, each with its own thread. */
    public Object sessionsInParallel() throws Exception {
        Connection connection = connect();
        List<Thread> threads = new ArrayList<>();
        List<Object> outcomes = java.util.Collections.synchronizedList(new ArrayList<>());
        for (int number = 0; number < 4; number++) {
            var own = queue("" + number);
            threads.add(new Thread(() -> outcomes.add(thrown(act(() -> {
                Session session = auto(connection);
                send(session, own, numbered(0, 30));
                outcomes.add(take(session.createConsumer(own), 30).equals(List.of((Object[]) numbered(0, 30))));
            })))));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        return outcomes.stream().map(Object::toString).sorted().toList();
    }
}
