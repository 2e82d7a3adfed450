import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;
import javax.jms.TransactionRolledBackException;
import javax.jms.XAConnection;
import javax.jms.XASession;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.ActiveMQXAConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.apache.activemq.transport.DefaultTransportListener;

/**
 * Clients that work while the brokers of their pair are replaced one after the other: Migration URI USER PASSWORD.
 *
 * In each lane one producer sends numbered messages to a queue, and one consumer receives them. The lanes differ in how
 * the two confirm: each message by itself, some of them at once, or in transactions. Every client has a connection of its
 * own. Standard output has a line for each event; it begins with System.nanoTime(), then:
 *
 *   confirmed LANE FIRST LAST        the send or the commit of these messages has returned
 *   doubt LANE FIRST LAST            the commit raised TransactionRolledBackException
 *   received LANE N REDELIVERED      the consumer has the message
 *   acknowledged LANE N              its acknowledgement or commit has returned
 *   again LANE N                     its commit was rolled back or is in doubt
 *   interrupted LANE-ROLE, resumed LANE-ROLE   the connection's transport was lost, and is there again
 *   job TEXT REDELIVERED             a scheduled message has come
 *
 * Commands come on standard input, a line each; "done" is printed after each of them:
 *
 *   schedule TEXT MILLIS             send a message that is due later
 *   subscribe, publish TEXT          make a durable subscription whose client is away; publish to its topic
 *   news COUNT first|last            its client comes, receives so many ("news TEXT REDELIVERED") and goes; after the
 *                                    last ones it waits for more
 *   prepare NAME                     prepare an XA branch that receives a message and sends one ("prepared NAME VOTE")
 *   leave NAME                       close the connection of a branch
 *   commit NAME, rollback NAME       end a branch, on its connection or, if that is closed, as one of those that recover
 *                                    finds ("recovered NAME")
 *   drain QUEUE                      receive what is there ("left QUEUE TEXT" or "left QUEUE N")
 *   stop, end                        end the producers; the consumers
 *
 * A client that throws prints "broken".
 */
public final class Migration {

    private static final long PATIENCE_MILLIS = 60_000;
    private static final long SILENCE_MILLIS = 1_000;
    private static final long PAUSE_MILLIS = 10;
    private static final int SENDS = 5;
    private static final int RECEIVES = 3;
    private static final ActiveMQTopic NEWS = new ActiveMQTopic("NEWS");
    private static final ActiveMQQueue TAKEN = new ActiveMQQueue("JAVA.TAKEN");
    private static final ActiveMQQueue SENT = new ActiveMQQueue("JAVA.SENT");
    private static final ActiveMQQueue JOBS = new ActiveMQQueue("JAVA.JOBS");

    private static final Map<String, Integer> LANES = new LinkedHashMap<>();

    static {
        LANES.put("client", Session.CLIENT_ACKNOWLEDGE);
        LANES.put("individual", ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
        LANES.put("transacted", Session.SESSION_TRANSACTED);
    }

    private static volatile boolean producing = true;
    private static volatile boolean consuming = true;

    private final String uri;
    private final String user;
    private final String password;
    private final List<Thread> producers = new ArrayList<>();
    private final List<Thread> consumers = new ArrayList<>();
    private final Map<String, PreparedBranch> branches = new HashMap<>();
    private final Session plain;

    private Migration(String uri, String user, String password) throws JMSException {
        this.uri = uri;
        this.user = user;
        this.password = password;
        plain = connection("plain").createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    public static void main(String[] arguments) throws Exception {
        Migration clients = new Migration(arguments[0], arguments[1], arguments[2]);
        for (Map.Entry<String, Integer> lane : LANES.entrySet()) {
            clients.producers.add(Load.started(() -> clients.produce(lane.getKey(), lane.getValue())));
            clients.consumers.add(Load.started(() -> clients.consume(lane.getKey(), lane.getValue())));
        }
        clients.consumers.add(Load.started(clients::doJobs));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = commands.readLine()) != null; ) {
            try {
                clients.carryOut(line.split(" "));
            } catch (Exception broken) {
                broken.printStackTrace();
                Load.report("broken " + line + ": " + broken);
            }
            Load.report("done");
        }
        Runtime.getRuntime().halt(0);
    }

    private Connection connection(String name) throws JMSException {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(user, password, uri);
        factory.setSendAcksAsync(false);
        ActiveMQConnection connection = (ActiveMQConnection) factory.createConnection();
        connection.addTransportListener(new DefaultTransportListener() {
            @Override
            public void transportInterupted() {
                Load.report("interrupted " + name);
            }

            @Override
            public void transportResumed() {
                Load.report("resumed " + name);
            }
        });
        if (name.equals("desk")) {
            connection.setClientID("java-desk");
        }
        connection.start();
        return connection;
    }

    private Session session(String name, int mode) throws JMSException {
        return connection(name).createSession(mode == Session.SESSION_TRANSACTED, mode);
    }

    // ------------------------------------------------------------ lanes

    private static ActiveMQQueue queue(String lane) {
        return new ActiveMQQueue("JAVA.LANE." + lane);
    }

    private void produce(String lane, int mode) throws Exception {
        Session session = session(lane + "-producer", mode);
        MessageProducer producer = session.createProducer(queue(lane));
        int count = session.getTransacted() ? SENDS : 1;
        for (int first = 1; producing; first += count) {
            int last = first + count - 1;
            for (int number = first; number <= last; number++) {
                Message message = session.createTextMessage("x".repeat(1_000));
                message.setIntProperty("number", number);
                producer.send(message);
            }
            String word = "confirmed ";
            if (session.getTransacted()) {
                try {
                    session.commit();
                } catch (TransactionRolledBackException inDoubt) {
                    word = "doubt ";
                }
            }
            Load.report(word + lane + " " + first + " " + last);
            Thread.sleep(PAUSE_MILLIS * count);
        }
    }

    private void consume(String lane, int mode) throws Exception {
        Session session = session(lane + "-consumer", mode);
        MessageConsumer consumer = session.createConsumer(queue(lane));
        List<Integer> held = new ArrayList<>();
        while (consuming || !held.isEmpty()) {
            Message message = consumer.receive(100);
            if (message != null) {
                held.add(message.getIntProperty("number"));
                Load.report("received " + lane + " " + held.get(held.size() - 1) + " " + message.getJMSRedelivered());
                if (mode == ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE || held.size() == RECEIVES && !session.getTransacted()) {
                    message.acknowledge();
                } else if (held.size() < RECEIVES) {
                    continue;
                }
            } else if (mode == Session.CLIENT_ACKNOWLEDGE) {
                ((ActiveMQSession) session).acknowledge();
            }
            String word = "acknowledged";
            if (session.getTransacted()) {
                try {
                    session.commit();
                } catch (TransactionRolledBackException rolledBack) {
                    word = "again";
                }
            }
            for (int number : held) {
                Load.report(word + " " + lane + " " + number);
            }
            held.clear();
        }
    }

    private void doJobs() throws Exception {
        MessageConsumer jobs = session("jobs", Session.AUTO_ACKNOWLEDGE).createConsumer(JOBS);
        while (consuming) {
            Message message = jobs.receive(100);
            if (message != null) {
                Load.report("job " + described(message));
            }
        }
    }

    private static String described(Message message) throws JMSException {
        return ((TextMessage) message).getText() + " " + message.getJMSRedelivered();
    }

    // ------------------------------------------------------------ commands

    private void carryOut(String[] words) throws Exception {
        switch (words[0]) {
            case "schedule" -> {
                Message message = plain.createTextMessage(words[1]);
                message.setLongProperty("AMQ_SCHEDULED_DELAY", Long.parseLong(words[2]));
                plain.createProducer(JOBS).send(message);
            }
            case "publish" -> plain.createProducer(NEWS).send(plain.createTextMessage(words[1]));
            case "subscribe" -> news(0, false);
            case "news" -> news(Integer.parseInt(words[1]), words[2].equals("last"));
            case "prepare" -> branches.put(words[1], new PreparedBranch(words[1]));
            case "leave" -> branches.remove(words[1]).connection.close();
            case "commit", "rollback" -> decide(words[1], words[0].equals("commit"));
            case "drain" -> drain(words[1]);
            case "stop" -> {
                producing = false;
                join(producers);
            }
            case "end" -> {
                consuming = false;
                join(consumers);
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static void join(List<Thread> threads) throws InterruptedException {
        for (Thread thread : threads) {
            thread.join(PATIENCE_MILLIS);
            if (thread.isAlive()) {
                Load.report("broken " + List.of(thread.getStackTrace()));
            }
        }
    }

    private void news(int count, boolean isLast) throws JMSException {
        Connection connection = connection("desk");
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer desk = session.createDurableSubscriber(NEWS, "java-news");
        for (int number = 0; number < count; number++) {
            Message message = desk.receive(PATIENCE_MILLIS);
            Load.report("news " + (message == null ? "nothing false" : described(message)));
        }
        Message more = isLast ? desk.receive(SILENCE_MILLIS) : null;
        if (more != null) {
            Load.report("news " + described(more));
        }
        connection.close();
    }

    private void drain(String queue) throws JMSException {
        MessageConsumer consumer = plain.createConsumer(new ActiveMQQueue(queue));
        for (Message message; (message = consumer.receive(SILENCE_MILLIS)) != null; ) {
            String number = message.getStringProperty("number");
            String text = number == null ? ((TextMessage) message).getText() : number;
            Load.report("left " + ((ActiveMQQueue) message.getJMSDestination()).getQueueName() + " " + text);
        }
        consumer.close();
    }

    // ------------------------------------------------------------ XA

    /** A branch that is prepared: it has received the message of its name, and sent one. */
    private final class PreparedBranch {

        private final XAConnection connection = xaConnection();
        private final XAResource resource;

        PreparedBranch(String name) throws Exception {
            Message message = plain.createTextMessage(name);
            message.setStringProperty("branch", name);
            plain.createProducer(TAKEN).send(message);
            XASession session = connection.createXASession();
            resource = session.getXAResource();
            Xa.Branch branch = new Xa.Branch(name);
            resource.start(branch, XAResource.TMNOFLAGS);
            Message taken = session.createConsumer(TAKEN, "branch = '" + name + "'").receive(PATIENCE_MILLIS);
            session.createProducer(SENT).send(session.createTextMessage(((TextMessage) taken).getText()));
            resource.end(branch, XAResource.TMSUCCESS);
            Load.report("prepared " + name + " " + resource.prepare(branch));
        }
    }

    private XAConnection xaConnection() throws JMSException {
        XAConnection connection = new ActiveMQXAConnectionFactory(user, password, uri).createXAConnection();
        connection.start();
        return connection;
    }

    private void decide(String name, boolean isCommitted) throws Exception {
        PreparedBranch prepared = branches.remove(name);
        XAConnection connection = prepared == null ? xaConnection() : prepared.connection;
        XAResource resource = prepared == null ? connection.createXASession().getXAResource() : prepared.resource;
        if (prepared == null) {
            for (Object each : Xa.recovered(resource, "")) {
                Load.report("recovered " + each);
            }
        }
        try {
            if (isCommitted) {
                resource.commit(new Xa.Branch(name), false);
            } else {
                resource.rollback(new Xa.Branch(name));
            }
            Load.report("decided " + name);
        } catch (XAException refused) {
            Load.report("broken " + name + ": error " + refused.errorCode);
        }
        connection.close();
    }
}
