import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TransactionRolledBackException;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.MessageDispatch;
import org.apache.activemq.transport.DefaultTransportListener;

/**
 * Clients that work while their broker is killed again and again: Load URI SEED PRODUCERS CONSUMERS TRANSACTED.
 *
 * PRODUCERS send with an answer, CONSUMERS acknowledge each message; TRANSACTED of either kind do so in transactions of a few
 * messages. Standard output is the ledger, a line for each event, written before anything else is done. Each begins with
 * System.nanoTime(), then:
 *
 *   sent PRODUCER N            the broker has answered: the message is safe
 *   committed PRODUCER N M     the commit of messages N to M was answered
 *   doubt PRODUCER N M         the commit raised TransactionRolledBackException: it may have happened or not
 *   aborted PRODUCER N M       the transaction was given up before its commit
 *   failed PRODUCER N M CLASS  the commit raised something else
 *   received CONSUMER PRODUCER N ID REDELIVERED ARRIVED   the program has the message (transacted: its transaction is
 *                                                         committed)
 *   unsure CONSUMER PRODUCER N ID REDELIVERED ARRIVED     the commit of the receiving transaction is in doubt
 *   undone CONSUMER PRODUCER N ID REDELIVERED ARRIVED     the receiving transaction was rolled back: it will come again
 *
 * ARRIVED is the time at which the connection got the message. An automatic acknowledgement may have it wait for the next
 * broker before the program gets it.
 *
 * "stop" on standard input ends the producers, "end" the consumers; "idle" is printed once they are done. A client that
 * throws prints "broken", one that does not come to its end "stuck", and where.
 */
public final class Load {

    private static final ActiveMQQueue QUEUE = new ActiveMQQueue("KILLS");
    private static final int[] SIZES = {0, 10, 1_000, 20_000};
    private static final long PATIENCE_MILLIS = 20_000;
    private static final int SENDS = 5;
    private static final int RECEIVES = 7;

    private static volatile boolean producing = true;
    private static volatile boolean consuming = true;

    private final Connection connection;
    private final Random random;
    private final String name;
    private final Map<String, Long> arrivals = new ConcurrentHashMap<>();

    private Load(String uri, String name, long seed) throws JMSException {
        connection = new ActiveMQConnectionFactory(uri).createConnection();
        ((ActiveMQConnection) connection).addTransportListener(new DefaultTransportListener() {
            @Override
            public void onCommand(Object command) {
                if (command instanceof MessageDispatch && ((MessageDispatch) command).getMessage() != null) {
                    arrivals.put(((MessageDispatch) command).getMessage().getMessageId().toString(), System.nanoTime());
                }
            }
        });
        connection.start();
        random = new Random(seed + name.hashCode());
        this.name = name;
    }

    public static void main(String[] arguments) throws Exception {
        String uri = arguments[0];
        long seed = Long.parseLong(arguments[1]);
        int transacted = Integer.parseInt(arguments[4]);
        List<Thread> producers = new ArrayList<>();
        List<Thread> consumers = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
            producers.add(started(new Load(uri, "p" + number, seed)::produce));
        }
        for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
            consumers.add(started(new Load(uri, "c" + number, seed)::consume));
        }
        for (int number = 0; number < transacted; number++) {
            producers.add(started(new Load(uri, "tp" + number, seed)::produceTransacted));
            consumers.add(started(new Load(uri, "tc" + number, seed)::consumeTransacted));
        }
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String command; (command = commands.readLine()) != null; ) {
            boolean stop = command.equals("stop");
            if (stop) {
                producing = false;
            } else {
                consuming = false;
            }
            for (Thread thread : stop ? producers : consumers) {
                thread.join(PATIENCE_MILLIS);
                if (thread.isAlive()) {
                    report("stuck " + List.of(thread.getStackTrace()));
                }
            }
            report("idle");
        }
        Runtime.getRuntime().halt(0);
    }

    static Thread started(Area.Action work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable broken) {
                broken.printStackTrace();
                report("broken " + broken);
            }
        });
        thread.start();
        return thread;
    }

    static void report(String line) {
        synchronized (System.out) {
            System.out.println(System.nanoTime() + " " + line);
            System.out.flush();
        }
    }

    private Message message(Session session, int sequence) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(new byte[SIZES[random.nextInt(SIZES.length)]]);
        message.setStringProperty("producer", name);
        message.setIntProperty("sequence", sequence);
        return message;
    }

    private String described(Message message) throws JMSException {
        Long arrival = arrivals.remove(message.getJMSMessageID());
        return message.getStringProperty("producer") + " " + message.getIntProperty("sequence") + " "
                + message.getJMSMessageID() + " " + message.getJMSRedelivered() + " "
                + (arrival == null ? System.nanoTime() : arrival);
    }

    private void produce() throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(QUEUE);
        for (int sequence = 1; producing; sequence++) {
            producer.send(message(session, sequence));
            report("sent " + name + " " + sequence);
        }
        connection.close();
    }

    private void produceTransacted() throws JMSException {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageProducer producer = session.createProducer(QUEUE);
        for (int first = 1; producing; first += SENDS) {
            String range = name + " " + first + " " + (first + SENDS - 1);
            for (int sequence = first; sequence < first + SENDS; sequence++) {
                producer.send(message(session, sequence));
            }
            if (random.nextInt(8) == 0) {
                session.rollback();
                report("aborted " + range);
                continue;
            }
            try {
                session.commit();
                report("committed " + range);
            } catch (TransactionRolledBackException inDoubt) {
                report("doubt " + range);
            } catch (JMSException refused) {
                report("failed " + range + " " + refused.getClass().getName());
            }
        }
        connection.close();
    }

    private void consume() throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(new ActiveMQQueue("KILLS?consumer.prefetchSize=30"));
        while (consuming) {
            Message message = consumer.receive(100);
            if (message != null) {
                report("received " + name + " " + described(message));
            }
        }
        connection.close();
    }

    private void consumeTransacted() throws JMSException {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(new ActiveMQQueue("KILLS?consumer.prefetchSize=30"));
        while (consuming) {
            List<String> lines = new ArrayList<>();
            while (lines.size() < RECEIVES && consuming) {
                Message message = consumer.receive(100);
                if (message == null) {
                    break;
                }
                lines.add(" " + name + " " + described(message));
            }
            String word = "received";
            try {
                session.commit();
            } catch (TransactionRolledBackException refused) {
                word = refused.getMessage().contains("in doubt") ? "unsure" : "undone";
            }
            for (String line : lines) {
                report(word + line);
            }
        }
        connection.close();
    }
}
