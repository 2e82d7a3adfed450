import java.util.Arrays;
import java.util.Enumeration;
import java.util.HexFormat;
import java.util.TreeSet;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.Destination;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.ObjectMessage;
import javax.jms.Queue;
import javax.jms.QueueBrowser;
import javax.jms.Session;
import javax.jms.StreamMessage;
import javax.jms.TextMessage;
import javax.jms.Topic;
import javax.jms.XAConnection;
import javax.jms.XASession;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQXAConnectionFactory;

/**
 * Fills a store by its broker with one of everything, and reads all of that without changing anything.
 *
 *   WholeStore URI fill
 *   WholeStore URI read                 prints, one fact a line, in a form that every broker has to agree on:
 *     queue NAME ID PRIORITY BODY         in the order of browsing
 *     subscription NAME ID BODY           what is pending for a durable subscription, in the order of delivery
 *     job BODY TIMES                      a scheduled message
 *     doubt GLOBAL BRANCH                 a prepared transaction
 *   WholeStore URI publish              sends a message to VirtualTopic.X
 *   WholeStore URI decide commit|rollback   ends all prepared transactions
 *   WholeStore URI send QUEUE TEXT      sends a message
 *   WholeStore URI take QUEUE           consumes all messages, and prints their bodies
 */
public final class WholeStore {
    private static final String[] QUEUES = {"ORDERS", "KINDS", "PRIORITIES", "BIG", "POISON", "ActiveMQ.DLQ",
        "Consumer.a.VirtualTopic.X"};
    private static final String[] SUBSCRIPTIONS = {"all", "dear", "wild"};
    private static final long WAIT = 5000;
    private static final long NEXT = 300;

    public static void main(String[] arguments) throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        factory.setTrustAllPackages(true);
        factory.getPrefetchPolicy().setAll(1000);
        factory.getRedeliveryPolicy().setMaximumRedeliveries(arguments[1].equals("fill") ? 0 : -1);
        switch (arguments[1]) {
            case "fill" -> fill(factory, arguments[0]);
            case "read" -> read(factory, arguments[0]);
            case "decide" -> decide(arguments[0], arguments[2]);
            case "take" -> take(factory, arguments[2]);
            default -> {
                Connection connection = factory.createConnection();
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                boolean publishes = arguments[1].equals("publish");
                send(session, publishes ? session.createTopic("VirtualTopic.X") : session.createQueue(arguments[2]),
                    session.createTextMessage(publishes ? "published" : arguments[3]));
                connection.close();
            }
        }
    }

    // ---------------------------------------------------------------- filling

    private static void fill(ActiveMQConnectionFactory factory, String uri) throws Exception {
        Connection connection = factory.createConnection();
        connection.setClientID("client");
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue orders = session.createQueue("ORDERS");
        for (int i = 0; i < 20; i++) {
            TextMessage message = session.createTextMessage("order " + i + " \u00e4\u20ac");
            message.setIntProperty("number", i);
            message.setStringProperty("who", "ann");
            send(session, orders, message);
        }
        MessageConsumer consumer = session.createConsumer(orders);
        for (int i = 0; i < 3; i++) {
            consumer.receive(WAIT);
        }
        consumer.close();
        kinds(session);
        MessageProducer producer = session.createProducer(session.createQueue("PRIORITIES"));
        for (int i = 0; i < 10; i++) {
            producer.send(session.createTextMessage("priority " + i), 2, i, 0);
        }
        BytesMessage big = session.createBytesMessage();
        big.writeBytes(new byte[3_000_000]);
        send(session, session.createQueue("BIG"), big);
        subscriptions(session);
        schedule(session);
        session.createConsumer(session.createQueue("Consumer.a.VirtualTopic.X")).close();
        poison(connection);
        transactions(connection, uri);
        connection.close();
    }

    private static void kinds(Session session) throws Exception {
        Queue queue = session.createQueue("KINDS");
        MapMessage map = session.createMapMessage();
        map.setLong("long", 1L << 40);
        map.setString("text", "x");
        send(session, queue, map);
        send(session, queue, session.createObjectMessage("an object"));
        StreamMessage stream = session.createStreamMessage();
        stream.writeInt(7);
        stream.writeString("seven");
        send(session, queue, stream);
        Message empty = session.createMessage();
        empty.setJMSCorrelationID("correlation");
        empty.setJMSType("type");
        empty.setJMSReplyTo(session.createTopic("ANSWERS"));
        empty.setStringProperty("JMSXGroupID", "group");
        send(session, queue, empty);
    }

    private static void subscriptions(Session session) throws Exception {
        Topic prices = session.createTopic("PRICES.EU");
        session.createDurableSubscriber(prices, "all").close();
        session.createDurableSubscriber(prices, "dear", "price > 5", true).close();
        session.createDurableSubscriber(session.createTopic("PRICES.>"), "wild").close();
        for (int i = 0; i < 10; i++) {
            TextMessage message = session.createTextMessage("price " + i);
            message.setIntProperty("price", i);
            send(session, prices, message);
        }
        MessageConsumer all = session.createDurableSubscriber(prices, "all");
        for (int i = 0; i < 4; i++) {
            all.receive(WAIT);
        }
        all.close();
    }

    private static void schedule(Session session) throws Exception {
        Queue later = session.createQueue("LATER");
        TextMessage once = session.createTextMessage("once");
        once.setLongProperty("AMQ_SCHEDULED_DELAY", 86_400_000L);
        send(session, later, once);
        TextMessage often = session.createTextMessage("often");
        often.setLongProperty("AMQ_SCHEDULED_DELAY", 86_400_000L);
        often.setLongProperty("AMQ_SCHEDULED_PERIOD", 60_000L);
        often.setIntProperty("AMQ_SCHEDULED_REPEAT", 9);
        send(session, later, often);
        TextMessage yearly = session.createTextMessage("yearly");
        yearly.setStringProperty("AMQ_SCHEDULED_CRON", "0 3 1 1 *");
        send(session, later, yearly);
    }

    private static void poison(Connection connection) throws Exception {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue queue = session.createQueue("POISON");
        send(session, queue, session.createTextMessage("poison"));
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        consumer.receive(WAIT);
        session.rollback();
        consumer.receive(NEXT);  // the client sends what it will not take any more to the dead letters
        session.close();
    }

    private static void transactions(Connection connection, String uri) throws Exception {
        Session local = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue orders = local.createQueue("ORDERS");
        send(local, orders, local.createTextMessage("committed"));
        local.commit();
        send(local, orders, local.createTextMessage("rolled back"));
        local.rollback();
        XAConnection distributed = new ActiveMQXAConnectionFactory(uri).createXAConnection();
        distributed.start();
        XASession session = distributed.createXASession();
        XAResource resource = session.getXAResource();
        Branch branch = new Branch("branch".getBytes("UTF-8"));
        resource.start(branch, XAResource.TMNOFLAGS);
        session.createConsumer(session.createQueue("ORDERS")).receive(WAIT);
        send(session, session.createQueue("ORDERS"), session.createTextMessage("in doubt"));
        resource.end(branch, XAResource.TMSUCCESS);
        resource.prepare(branch);
        distributed.close();
    }

    private static void send(Session session, Destination destination, Message message) throws Exception {
        MessageProducer producer = session.createProducer(destination);
        producer.send(message);
        producer.close();
    }

    // ---------------------------------------------------------------- reading

    private static void read(ActiveMQConnectionFactory factory, String uri) throws Exception {
        Connection connection = factory.createConnection();
        connection.setClientID("client");
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        for (String name : QUEUES) {
            TreeSet<String> lines = new TreeSet<>();
            QueueBrowser browser = session.createBrowser(session.createQueue(name));
            for (Enumeration<?> messages = browser.getEnumeration(); messages.hasMoreElements(); ) {
                Message message = (Message) messages.nextElement();
                String line = "queue " + name + " " + described(message);
                if (name.equals("PRIORITIES")) {
                    lines.add(line);  // brokers differ in the order in which they show priorities
                } else {
                    System.out.println(line);
                }
            }
            lines.forEach(System.out::println);
            browser.close();
        }
        for (String name : SUBSCRIPTIONS) {
            Session reading = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer consumer = name.equals("dear")
                ? reading.createDurableSubscriber(reading.createTopic("PRICES.EU"), name, "price > 5", true)
                : reading.createDurableSubscriber(
                    reading.createTopic(name.equals("wild") ? "PRICES.>" : "PRICES.EU"), name);
            for (Message message = consumer.receive(WAIT); message != null; message = consumer.receive(NEXT)) {
                System.out.println("subscription " + name + " " + described(message));
            }
            reading.close();  // without an acknowledgement
        }
        jobs(session);
        connection.close();
        for (Xid xid : recovered(uri)) {
            System.out.println("doubt " + hex(xid.getGlobalTransactionId()) + " " + hex(xid.getBranchQualifier()));
        }
    }

    private static void take(ActiveMQConnectionFactory factory, String name) throws Exception {
        Connection connection = factory.createConnection();
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(session.createQueue(name));
        for (Message message = consumer.receive(WAIT); message != null; message = consumer.receive(NEXT)) {
            System.out.println(body(message));
        }
        connection.close();
    }

    private static void jobs(Session session) throws Exception {
        Destination answers = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(answers);
        Message request = session.createMessage();
        request.setStringProperty("AMQ_SCHEDULER_ACTION", "BROWSE");
        request.setJMSReplyTo(answers);
        send(session, session.createTopic("ActiveMQ.Scheduler.Management"), request);
        TreeSet<String> lines = new TreeSet<>();
        for (Message message = consumer.receive(WAIT); message != null; message = consumer.receive(NEXT)) {
            lines.add("job " + ((TextMessage) message).getText() + " " + message.getStringProperty("AMQ_SCHEDULED_DELAY")
                + " " + message.getStringProperty("AMQ_SCHEDULED_PERIOD") + " "
                + message.getStringProperty("AMQ_SCHEDULED_REPEAT") + " "
                + message.getStringProperty("AMQ_SCHEDULED_CRON"));
        }
        lines.forEach(System.out::println);
    }

    private static String described(Message message) throws Exception {
        TreeSet<String> properties = new TreeSet<>();
        for (Enumeration<?> names = message.getPropertyNames(); names.hasMoreElements(); ) {
            String name = (String) names.nextElement();
            if (!name.startsWith("JMSX") || name.equals("JMSXGroupID")) {
                properties.add(name + "=" + message.getObjectProperty(name));
            }
        }
        return message.getJMSMessageID() + " " + message.getJMSPriority() + " " + message.getJMSCorrelationID() + " "
            + message.getJMSType() + " " + message.getJMSReplyTo() + " " + properties + " " + body(message);
    }

    private static String body(Message message) throws Exception {
        if (message instanceof TextMessage text) {
            return text.getText();
        }
        if (message instanceof BytesMessage bytes) {
            byte[] body = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(body);
            return body.length + " bytes " + Arrays.hashCode(body);
        }
        if (message instanceof MapMessage map) {
            return map.getLong("long") + " " + map.getString("text");
        }
        if (message instanceof ObjectMessage object) {
            return String.valueOf(object.getObject());
        }
        if (message instanceof StreamMessage stream) {
            return stream.readInt() + " " + stream.readString();
        }
        return "-";
    }

    // ---------------------------------------------------------------- transactions in doubt

    private static Xid[] recovered(String uri) throws Exception {
        XAConnection connection = new ActiveMQXAConnectionFactory(uri).createXAConnection();
        connection.start();
        Xid[] found = connection.createXASession().getXAResource().recover(XAResource.TMSTARTRSCAN);
        connection.close();
        return found;
    }

    private static void decide(String uri, String outcome) throws Exception {
        XAConnection connection = new ActiveMQXAConnectionFactory(uri).createXAConnection();
        connection.start();
        XAResource resource = connection.createXASession().getXAResource();
        for (Xid xid : resource.recover(XAResource.TMSTARTRSCAN)) {
            if (outcome.equals("commit")) {
                resource.commit(xid, false);
            } else {
                resource.rollback(xid);
            }
        }
        connection.close();
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    private record Branch(byte[] name) implements Xid {
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
}
