import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicLong;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.apache.activemq.transport.tcp.TcpTransport;

/** What every check uses: connections that are closed after it, destinations of its own, and short words for JMS. */
abstract class Area {

    /** What certainly comes may take this long on a busy machine. */
    static final long PATIENCE = 10_000;

    /** How long to listen for what must not come, on a machine that is not too busy to send it. */
    static final long SILENCE = 200;

    /** Options of a connection that redelivers without a pause. */
    static final String AT_ONCE =
            "jms.redeliveryPolicy.initialRedeliveryDelay=0&jms.redeliveryPolicy.redeliveryDelay=0";

    private final List<Connection> opened = Collections.synchronizedList(new ArrayList<>());
    private String uri;
    private String name;

    void begin(String uri, String check) {
        this.uri = uri;
        this.name = getClass().getSimpleName() + "." + check;
    }

    void end() {
        for (Connection connection : opened) {
            try {
                connection.close();
            } catch (JMSException lostAnyway) {
                System.err.println(name + ": closing: " + lostAnyway);
            }
        }
    }

    // ------------------------------------------------------------ connections, sessions

    String uri() {
        return uri;
    }

    /** A factory for the broker's address with options, such as "jms.prefetchPolicy.queuePrefetch=1". */
    ActiveMQConnectionFactory factory(String options) {
        String separator = uri.contains("?") ? "&" : "?";
        return new ActiveMQConnectionFactory(options.isEmpty() ? uri : uri + separator + options);
    }

    /** A started connection. */
    ActiveMQConnection connect() throws JMSException {
        return connect("");
    }

    ActiveMQConnection connect(String options) throws JMSException {
        ActiveMQConnection connection = unstarted(options);
        connection.start();
        return connection;
    }

    ActiveMQConnection unstarted(String options) throws JMSException {
        return keep((ActiveMQConnection) factory(options).createConnection());
    }

    /** A started connection with a client id. */
    ActiveMQConnection identified(String clientId) throws JMSException {
        ActiveMQConnection connection = unstarted("");
        connection.setClientID(clientId);
        connection.start();
        return connection;
    }

    /** Close a connection after the check. */
    <C extends Connection> C keep(C connection) {
        opened.add(connection);
        return connection;
    }

    static ActiveMQSession auto(Connection connection) throws JMSException {
        return (ActiveMQSession) connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    static ActiveMQSession client(Connection connection) throws JMSException {
        return (ActiveMQSession) connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
    }

    static ActiveMQSession transacted(Connection connection) throws JMSException {
        return (ActiveMQSession) connection.createSession(true, Session.SESSION_TRANSACTED);
    }

    /** Break a connection's socket; neither side is notified. */
    static void cut(ActiveMQConnection connection) throws Exception {
        connection.getTransport().narrow(TcpTransport.class).stop();
    }

    /** Return once the broker has done everything that was sent to it on a connection. */
    static void awaitBroker(Connection connection) throws JMSException {
        Session session = auto(connection);
        session.createTemporaryQueue().delete();
        session.close();
    }

    // ------------------------------------------------------------ the test that runs us

    private static final BufferedReader ANSWERS = new BufferedReader(new InputStreamReader(System.in));

    /** Have the test do something, such as killing a broker, and return its answer, one line of JSON. */
    Json.Raw ask(String request) throws IOException {
        System.out.println(Json.write(facts("check", name.substring(name.indexOf('.') + 1), "ask", request)));
        System.out.flush();
        return new Json.Raw(ANSWERS.readLine());
    }

    /** Like ask, for an answer that is a text. */
    String askText(String request) throws IOException {
        String answer = ask(request).text();
        return answer.substring(1, answer.length() - 1);
    }

    // ------------------------------------------------------------ destinations

    /** A name that belongs to this check alone. */
    String named(String suffix) {
        return suffix.isEmpty() ? name : name + "." + suffix;
    }

    ActiveMQQueue queue() {
        return queue("");
    }

    ActiveMQQueue queue(String suffix) {
        return new ActiveMQQueue(named(suffix));
    }

    ActiveMQTopic topic() {
        return topic("");
    }

    ActiveMQTopic topic(String suffix) {
        return new ActiveMQTopic(named(suffix));
    }

    // ------------------------------------------------------------ sending

    /** Send persistent text messages. */
    static void send(Session session, Destination destination, String... bodies) throws JMSException {
        MessageProducer producer = session.createProducer(destination);
        for (String body : bodies) {
            producer.send(session.createTextMessage(body));
        }
        producer.close();
    }

    /** Send messages m0, m1, ... on a connection of their own. */
    void fill(Destination destination, int count) throws JMSException {
        Connection connection = connect();
        send(auto(connection), destination, numbered(0, count));
        connection.close();
    }

    static String[] numbered(int from, int to) {
        String[] bodies = new String[to - from];
        Arrays.setAll(bodies, index -> "m" + (from + index));
        return bodies;
    }

    static void sendTransient(Session session, Destination destination, String... bodies) throws JMSException {
        MessageProducer producer = session.createProducer(destination);
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        for (String body : bodies) {
            producer.send(session.createTextMessage(body));
        }
        producer.close();
    }

    // ------------------------------------------------------------ receiving

    /** The bodies of the next messages, up to a first "nothing" when too few came. */
    static List<Object> take(MessageConsumer consumer, int count) throws JMSException {
        List<Object> bodies = new ArrayList<>();
        while (bodies.size() < count && !bodies.contains("nothing")) {
            bodies.add(body(consumer.receive(PATIENCE)));
        }
        return bodies;
    }

    /** Like take, with the mark of redelivery and the count of deliveries: [body, redelivered, deliveries]. */
    static List<Object> takeMarked(MessageConsumer consumer, int count) throws JMSException {
        List<Object> seen = new ArrayList<>();
        while (seen.size() < count && !seen.contains("nothing")) {
            seen.add(marked(consumer.receive(PATIENCE)));
        }
        return seen;
    }

    static Object marked(Message message) throws JMSException {
        if (message == null) {
            return "nothing";
        }
        return List.of(body(message), message.getJMSRedelivered(), message.getIntProperty("JMSXDeliveryCount"));
    }

    /** What is in a queue, in order, taken out of it. */
    List<Object> drain(Destination destination) throws JMSException {
        Connection connection = connect("jms.prefetchPolicy.all=0");
        List<Object> bodies = drain(auto(connection).createConsumer(destination));
        connection.close();
        return bodies;
    }

    static List<Object> drain(MessageConsumer consumer) throws JMSException {
        return drain(consumer, 0);
    }

    /** Like drain, with all patience for a number of messages that must come. */
    static List<Object> drain(MessageConsumer consumer, int least) throws JMSException {
        List<Object> bodies = take(consumer, least);
        for (Message message; (message = next(consumer, SILENCE)) != null; ) {
            bodies.add(body(message));
        }
        return bodies;
    }

    /** All messages, with all patience for a number of them that must come. */
    static List<Message> all(MessageConsumer consumer, int least) throws JMSException {
        List<Message> came = new ArrayList<>();
        while (true) {
            Message message = came.size() < least ? consumer.receive(PATIENCE) : next(consumer, SILENCE);
            if (message == null) {
                return came;
            }
            came.add(message);
        }
    }

    static boolean silent(MessageConsumer consumer) throws JMSException {
        return next(consumer, SILENCE) == null;
    }

    /**
     * The next message, or null after a silence. One in which this machine was too busy to keep its own time
     * does not count: it waits again.
     */
    static Message next(MessageConsumer consumer, long silence) throws JMSException {
        for (int tries = 0; tries < 50; tries++) {
            long late = Ticker.late();
            Message message = consumer.receive(silence);
            if (message != null || Ticker.late() - late < silence / 4) {
                return message;
            }
        }
        return null;
    }

    /** A thread that wakes up again and again, and adds up how many milliseconds too late it did. */
    private static final class Ticker {

        private static final long PERIOD = 10;
        private static final AtomicLong LATE_NANOS = new AtomicLong();

        static {
            Thread thread = new Thread(Ticker::run, "ticker");
            thread.setDaemon(true);
            thread.start();
        }

        static long late() {
            return LATE_NANOS.get() / 1_000_000;
        }

        private static void run() {
            while (true) {
                long began = System.nanoTime();
                try {
                    Thread.sleep(PERIOD);
                } catch (InterruptedException never) {
                    throw new AssertionError(never);
                }
                LATE_NANOS.addAndGet(System.nanoTime() - began - PERIOD * 1_000_000);
            }
        }
    }

    /** A text as it is, anything else by the name of its interface. */
    static Object body(Message message) throws JMSException {
        if (message == null) {
            return "nothing";
        } else if (message instanceof TextMessage text) {
            return String.valueOf(text.getText());
        } else if (message instanceof BytesMessage bytes) {
            byte[] content = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(content);
            return content;
        }
        return message.getClass().getSimpleName();
    }

    /** What a browser shows, in order. */
    static List<Object> browse(Session session, Destination queue, String selector) throws JMSException {
        List<Object> bodies = new ArrayList<>();
        var browser = session.createBrowser((javax.jms.Queue) queue, selector);
        for (Enumeration<?> shown = browser.getEnumeration(); shown.hasMoreElements(); ) {
            bodies.add(body((Message) shown.nextElement()));
        }
        browser.close();
        return bodies;
    }

    /** All properties, sorted by name; values with their types, since 1 and 1L are not the same. */
    static Map<String, Object> properties(Message message) throws JMSException {
        Map<String, Object> found = new TreeMap<>();
        for (Enumeration<?> names = message.getPropertyNames(); names.hasMoreElements(); ) {
            String property = (String) names.nextElement();
            found.put(property, typed(message.getObjectProperty(property)));
        }
        return found;
    }

    /** "Integer 5" for 5, "byte[] 00ff" for bytes. */
    static Object typed(Object value) {
        if (value == null) {
            return null;
        }
        Object shown = value instanceof byte[] bytes ? java.util.HexFormat.of().formatHex(bytes) : value;
        return value.getClass().getSimpleName() + " " + shown;
    }

    // ------------------------------------------------------------ outcomes

    /** The class that an action throws, or "nothing". */
    static String thrown(Callable<?> action) {
        try {
            action.call();
        } catch (Exception refused) {
            return refused.getClass().getName();
        }
        return "nothing";
    }

    /** Class, message and cause of what is thrown. */
    static String described(Action action) {
        try {
            action.run();
            return "nothing";
        } catch (Exception error) {
            return error.getClass().getName() + ": " + error.getMessage() + " <- "
                    + (error.getCause() == null ? "nothing" : error.getCause().getClass().getName());
        }
    }

    /** An ordered map: facts("a", 1, "b", 2). */
    static Map<String, Object> facts(Object... namesAndValues) {
        Map<String, Object> made = new LinkedHashMap<>();
        for (int index = 0; index < namesAndValues.length; index += 2) {
            made.put((String) namesAndValues[index], namesAndValues[index + 1]);
        }
        return made;
    }

    /** Run an action that returns nothing as one that returns null. */
    static Callable<Void> act(Action action) {
        return () -> {
            action.run();
            return null;
        };
    }

    interface Action {
        void run() throws Exception;
    }
}
