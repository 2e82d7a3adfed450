import java.util.ArrayList;
import java.util.Enumeration;
import java.util.HexFormat;
import java.util.List;
import java.util.TreeMap;
import javax.jms.Connection;
import javax.jms.MessageConsumer;
import javax.jms.QueueBrowser;
import javax.jms.Session;
import javax.jms.TextMessage;
import javax.jms.XAConnection;
import javax.jms.XASession;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQXAConnectionFactory;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.apache.activemq.command.Message;
import org.apache.activemq.command.MessageId;
import org.apache.activemq.command.SubscriptionInfo;
import org.apache.activemq.store.MessageRecoveryListener;
import org.apache.activemq.store.TopicMessageStore;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

/**
 * Opens a KahaDB directory with a real broker and prints what it holds, one fact per line:
 *
 *   queue NAME ID TEXT          a message, in the order of browsing; TEXT "-" when it is not a text message
 *   pending TOPIC KEY SELECTOR ID   a message a durable subscription still has to get; ID "-" when there is none
 *   doubt FORMAT GLOBAL BRANCH      a prepared transaction, as XAResource.recover gives it; ids in hexadecimal
 *
 * Arguments: the directory, then any of
 *   take:QUEUE    consume the queue's first message
 *   send:QUEUE:TEXT   send a message
 *   drain:TOPIC:CLIENT:NAME   attach the durable subscription (TOPIC as it subscribed) and acknowledge all it has
 *   hear:TOPIC:CLIENT:NAME   the same, and print "heard TOPIC CLIENT:NAME ID" for each message, in the order of delivery
 *   prepare:NAME:QUEUE:TEXT   in an XA branch, consume the queue's first message, send another, and prepare
 *   prepare:NAME:TOPIC:CLIENT:NAME   in an XA branch, acknowledge a durable subscription's first message, and prepare
 *   commit:NAME, rollback:NAME   end a branch that recover gives
 *   halt   leave without stopping the broker
 *
 * The branch NAME has format 4660, and NAME for both its ids.
 *
 * Done in their order, before printing.
 */
public class OpenStore {
    public static void main(String[] arguments) throws Exception {
        BrokerService broker = new BrokerService();
        broker.setBrokerName("probe");
        broker.setUseJmx(false);
        broker.setAdvisorySupport(false);
        broker.setSchedulerSupport(false);
        broker.setDataDirectory(arguments[0] + "-data");
        KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
        store.setDirectory(new java.io.File(arguments[0]));
        broker.setPersistenceAdapter(store);
        broker.start();
        broker.waitUntilStarted();
        boolean halt = false;
        StringBuilder out = new StringBuilder();
        for (int i = 1; i < arguments.length; i++) {
            String[] step = arguments[i].split(":", 5);
            if (step[0].equals("halt")) {
                halt = true;
            } else if (List.of("prepare", "commit", "rollback").contains(step[0])) {
                decide(step);
            } else if (step[0].equals("hear")) {
                hear(step, out);
            } else {
                perform(step);
            }
        }
        describe(store, out);
        System.out.print(out);
        System.out.flush();
        if (halt) {
            Runtime.getRuntime().halt(0);
        }
        broker.stop();
        broker.waitUntilStopped();
    }

    private static ActiveMQConnectionFactory factory() {
        return new ActiveMQConnectionFactory("vm://probe?create=false");
    }

    private static void perform(String[] step) throws Exception {
        Connection connection = factory().createConnection();
        if (step[0].equals("drain")) {
            connection.setClientID(step[2]);
        }
        connection.start();
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        if (step[0].equals("send")) {
            session.createProducer(session.createQueue(step[1])).send(session.createTextMessage(step[2]));
        } else {
            MessageConsumer consumer = step[0].equals("take")
                ? session.createConsumer(session.createQueue(step[1]))
                : session.createDurableSubscriber(session.createTopic(step[1]), step[3]);
            javax.jms.Message message = consumer.receive(5000);
            if (message == null) {
                throw new IllegalStateException("nothing came for " + String.join(":", step));
            }
            message.acknowledge();
            while (step[0].equals("drain") && (message = consumer.receive(500)) != null) {
                message.acknowledge();
            }
            consumer.close();
        }
        connection.close();
    }

    private static void hear(String[] step, StringBuilder out) throws Exception {
        Connection connection = factory().createConnection();
        connection.setClientID(step[2]);
        connection.start();
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createDurableSubscriber(session.createTopic(step[1]), step[3]);
        javax.jms.Message message;
        while ((message = consumer.receive(1500)) != null) {
            out.append("heard ").append(step[1]).append(' ').append(step[2]).append(':').append(step[3]).append(' ')
                .append(message.getJMSMessageID()).append('\n');
            message.acknowledge();
        }
        connection.close();
    }

    private static void decide(String[] step) throws Exception {
        XAConnection connection = new ActiveMQXAConnectionFactory("vm://probe?create=false").createXAConnection();
        if (step.length == 5) {
            connection.setClientID(step[3]);
        }
        connection.start();
        XASession session = connection.createXASession();
        XAResource resource = session.getXAResource();
        Branch branch = new Branch(step[1].getBytes("UTF-8"));
        if (step[0].equals("commit")) {
            resource.commit(branch, false);
        } else if (step[0].equals("rollback")) {
            resource.rollback(branch);
        } else {
            resource.start(branch, XAResource.TMNOFLAGS);
            MessageConsumer consumer = step.length == 5
                ? session.createDurableSubscriber(session.createTopic(step[2]), step[4])
                : session.createConsumer(session.createQueue(step[2]));
            if (consumer.receive(5000) == null) {
                throw new IllegalStateException("nothing came for " + String.join(":", step));
            }
            if (step.length == 4) {
                session.createProducer(session.createQueue(step[2])).send(session.createTextMessage(step[3]));
            }
            resource.end(branch, XAResource.TMSUCCESS);
            resource.prepare(branch);
        }
        connection.close();
    }

    private static void doubts(StringBuilder out) throws Exception {
        XAConnection connection = new ActiveMQXAConnectionFactory("vm://probe?create=false").createXAConnection();
        connection.start();
        for (Xid xid : connection.createXASession().getXAResource().recover(XAResource.TMSTARTRSCAN)) {
            out.append("doubt ").append(xid.getFormatId()).append(' ').append(hex(xid.getGlobalTransactionId()))
                .append(' ').append(hex(xid.getBranchQualifier())).append('\n');
        }
        connection.close();
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    private static void describe(KahaDBPersistenceAdapter store, StringBuilder out) throws Exception {
        TreeMap<String, ActiveMQDestination> destinations = new TreeMap<>();
        doubts(out);
        for (ActiveMQDestination destination : store.getDestinations()) {
            destinations.put(destination.getQualifiedName(), destination);
        }
        for (ActiveMQDestination destination : destinations.values()) {
            if (destination.isQueue()) {
                browse((ActiveMQQueue) destination, out);
            } else {
                pending(store, (ActiveMQTopic) destination, out);
            }
        }
    }

    private static void browse(ActiveMQQueue queue, StringBuilder out) throws Exception {
        ActiveMQConnectionFactory factory = factory();
        factory.getPrefetchPolicy().setQueueBrowserPrefetch(10000);
        Connection connection = factory.createConnection();
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        QueueBrowser browser = session.createBrowser(queue);
        for (Enumeration<?> messages = browser.getEnumeration(); messages.hasMoreElements(); ) {
            javax.jms.Message message = (javax.jms.Message) messages.nextElement();
            out.append("queue ").append(queue.getPhysicalName()).append(' ').append(message.getJMSMessageID())
                .append(' ').append(message instanceof TextMessage text ? text.getText() : "-").append('\n');
        }
        connection.close();
    }

    private static void pending(KahaDBPersistenceAdapter store, ActiveMQTopic topic, StringBuilder out)
            throws Exception {
        TopicMessageStore messages = store.createTopicMessageStore(topic);
        for (SubscriptionInfo info : messages.getAllSubscriptions()) {
            List<String> ids = new ArrayList<>();
            // recoverSubscription goes by the last ack; only the count knows a subscription that has nothing pending.
            if (messages.getMessageCount(info.getClientId(), info.getSubscriptionName()) > 0) {
                messages.recoverSubscription(info.getClientId(), info.getSubscriptionName(), new Collector(ids));
            }
            String prefix = "pending " + topic.getPhysicalName() + " " + info.getClientId() + ":"
                + info.getSubscriptionName() + " " + info.getSelector() + " ";
            for (String id : ids.isEmpty() ? List.of("-") : ids) {
                out.append(prefix).append(id).append('\n');
            }
        }
    }

    private static final class Branch implements Xid {
        private final byte[] name;

        Branch(byte[] name) {
            this.name = name;
        }

        @Override
        public int getFormatId() {
            return 4660;
        }

        @Override
        public byte[] getGlobalTransactionId() {
            return name;
        }

        @Override
        public byte[] getBranchQualifier() {
            return name;
        }
    }

    private static final class Collector implements MessageRecoveryListener {
        private final List<String> ids;

        Collector(List<String> ids) {
            this.ids = ids;
        }

        @Override
        public boolean recoverMessage(Message message) {
            ids.add(message.getMessageId().toProducerKey());
            return true;
        }

        @Override
        public boolean recoverMessageReference(MessageId id) {
            ids.add(id.toProducerKey());
            return true;
        }

        @Override
        public boolean hasSpace() {
            return true;
        }

        @Override
        public boolean isDuplicate(MessageId id) {
            return false;
        }
    }
}
