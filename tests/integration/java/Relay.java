import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;
import javax.jms.Topic;
import javax.jms.XAConnection;
import javax.jms.XASession;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQXAConnectionFactory;
import org.apache.activemq.ScheduledMessage;

/**
 * One leg of a relay: Relay URI LEG [last|held]. It leaves some of everything to the next broker, and prints what it does,
 * before and after it is confirmed:
 *
 *   sending BODY, sent BODY           a persistent message
 *   receiving BODY, received BODY     in a transaction, before and after its commit; "!" is appended to a redelivered one
 *   doubt NAME                        a branch that recover returns
 *   preparing NAME, prepared NAME     an XA branch that sends xa-NAME
 *   ending NAME commit|rollback, ended NAME
 *
 * A body begins with its kind, which is also its queue or topic: q (queue), t (topic with a durable subscription),
 * p (queue with priorities), x (transactions), xa, s (scheduled).
 *
 * The last leg consumes all there is. One that is held ends with its broker and not before, which is to be killed.
 */
public final class Relay {

    private static final int SENDS = 30;
    private static final int RECEIVES = 18;
    private static final int[] PRIORITIES = {1, 4, 8};
    private static final String END = "end";
    private static final long PATIENCE_MILLIS = 1000;
    private static final long LAST_PATIENCE_MILLIS = 20_000;
    private static final long SCHEDULED_MILLIS = 8000;

    private final int leg;
    private final boolean last;
    private final Connection connection;

    private Relay(Connection connection, int leg, boolean last) {
        this.connection = connection;
        this.leg = leg;
        this.last = last;
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Exception failure) { // its broker was killed; the client's threads would keep the process alive
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] arguments) throws Exception {
        var factory = new ActiveMQConnectionFactory(arguments[0]);
        factory.setWatchTopicAdvisories(false);
        Connection connection = factory.createConnection();
        connection.setClientID("relay");
        var lost = new CountDownLatch(1);
        connection.setExceptionListener(failure -> lost.countDown());
        connection.start();
        List<String> options = List.of(arguments).subList(2, arguments.length);
        boolean last = options.contains("last");
        var relay = new Relay(connection, Integer.parseInt(arguments[1]), last);
        relay.endBranches(arguments[0]);
        if (!last) {
            relay.send();
        }
        for (String kind : List.of("q", "p", "x", "xa", "t")) {
            relay.receive(kind);
        }
        if (last) {
            relay.receive("s");
        } else {
            relay.prepareBranch(arguments[0]);
        }
        if (options.contains("held")) {
            lost.await();
            return;
        }
        connection.close();
        report("over");
    }

    private static void report(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private void send() throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        session.createDurableSubscriber(session.createTopic("RELAY.T"), "durable").close();
        for (int number = 0; number < SENDS; number++) {
            sendOne(session, "q", number, 4, 0);
            sendOne(session, "t", number, 4, 0);
            sendOne(session, "p", number, PRIORITIES[number % PRIORITIES.length], 0);
            if (number % 5 == 0) {
                sendOne(session, "s", number, 4, number * 200);
            }
        }
        for (boolean commits : new boolean[] {true, false}) {
            Session transacted = connection.createSession(true, Session.SESSION_TRANSACTED);
            List<String> bodies = new ArrayList<>();
            MessageProducer producer = transacted.createProducer(transacted.createQueue("RELAY.X"));
            for (int number = 0; number < 5; number++) {
                bodies.add("x-" + leg + "-" + (commits ? "" : "undone-") + number);
                producer.send(transacted.createTextMessage(bodies.get(number)));
            }
            if (commits) {
                bodies.forEach(body -> report("sending " + body));
                transacted.commit();
                bodies.forEach(body -> report("sent " + body));
            } else {
                transacted.rollback();
            }
            transacted.close();
        }
    }

    private void sendOne(Session session, String kind, int number, int priority, long delayMillis) throws Exception {
        String name = "RELAY." + kind.toUpperCase();
        var destination = kind.equals("t") ? session.createTopic(name) : session.createQueue(name);
        TextMessage message = session.createTextMessage(kind + "-" + leg + "-" + number);
        if (delayMillis > 0) {
            message.setLongProperty(ScheduledMessage.AMQ_SCHEDULED_DELAY, delayMillis);
        }
        report("sending " + message.getText());
        MessageProducer producer = session.createProducer(destination);
        producer.send(message, javax.jms.DeliveryMode.PERSISTENT, priority, 0);
        producer.close();
        report("sent " + message.getText());
    }

    /** Receive some in transactions of three, one of which is rolled back first. */
    private void receive(String kind) throws Exception {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        String name = "RELAY." + kind.toUpperCase();
        MessageConsumer consumer = kind.equals("t")
                ? session.createDurableSubscriber((Topic) session.createTopic(name), "durable")
                : session.createConsumer(session.createQueue(name));
        long patience = PATIENCE_MILLIS;
        if (last && kind.equals("s")) {
            patience = SCHEDULED_MILLIS;
        } else if (last) {
            patience = LAST_PATIENCE_MILLIS;
            sendEnd(kind);
        }
        int left = last ? Integer.MAX_VALUE : RECEIVES;
        while (left > 0) {
            List<String> bodies = new ArrayList<>();
            Message message = null;
            while (bodies.size() < Math.min(3, left) && (message = consumer.receive(patience)) != null) {
                if (((TextMessage) message).getText().equals(END)) {
                    message = null;
                    break;
                }
                String mark = message.getJMSRedelivered() ? "!" : "";
                bodies.add(((TextMessage) message).getText() + mark);
            }
            bodies.forEach(body -> report("receiving " + body));
            session.commit();
            bodies.forEach(body -> report("received " + body));
            if (message == null) {
                break;
            }
            left -= bodies.size();
        }
        session.close();
    }

    /** Send what comes behind all there is. */
    private void sendEnd(String kind) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        String name = "RELAY." + kind.toUpperCase();
        var producer = session.createProducer(kind.equals("t") ? session.createTopic(name) : session.createQueue(name));
        producer.send(session.createTextMessage(END), javax.jms.DeliveryMode.PERSISTENT, 0, 0);
        session.close();
    }

    // ------------------------------------------------------------ XA

    private void endBranches(String uri) throws Exception {
        withResource(uri, (session, resource) -> {
            for (Xid found : resource.recover(XAResource.TMSTARTRSCAN)) {
                report("doubt " + new String(found.getGlobalTransactionId()));
            }
            for (Xid found : resource.recover(XAResource.TMSTARTRSCAN)) {
                String name = new String(found.getGlobalTransactionId());
                int begun = Integer.parseInt(name);
                if (begun < leg - 1 || last) { // it has seen two brokers since
                    report("ending " + name + (begun % 2 == 0 ? " commit" : " rollback"));
                    if (begun % 2 == 0) {
                        resource.commit(found, false);
                    } else {
                        resource.rollback(found);
                    }
                    report("ended " + name);
                }
            }
        });
    }

    private void prepareBranch(String uri) throws Exception {
        withResource(uri, (session, resource) -> {
            Xid branch = new Branch(Integer.toString(leg));
            resource.start(branch, XAResource.TMNOFLAGS);
            MessageProducer producer = session.createProducer(session.createQueue("RELAY.XA"));
            producer.send(session.createTextMessage("xa-" + leg));
            resource.end(branch, XAResource.TMSUCCESS);
            report("preparing " + leg);
            resource.prepare(branch);
            report("prepared " + leg);
        });
    }

    private interface Work {
        void with(XASession session, XAResource resource) throws Exception;
    }

    private static void withResource(String uri, Work work) throws Exception {
        var factory = new ActiveMQXAConnectionFactory(uri);
        factory.setWatchTopicAdvisories(false);
        XAConnection connection = factory.createXAConnection();
        connection.start();
        XASession session = connection.createXASession();
        work.with(session, session.getXAResource());
        connection.close();
    }

    private record Branch(String name) implements Xid {
        @Override
        public int getFormatId() {
            return 4660;
        }

        @Override
        public byte[] getGlobalTransactionId() {
            return name.getBytes();
        }

        @Override
        public byte[] getBranchQualifier() {
            return Arrays.copyOf(getGlobalTransactionId(), name.length());
        }
    }
}
