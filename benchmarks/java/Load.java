import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageListener;
import javax.jms.MessageProducer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/**
 * Loads a broker with the stock client; standard input has one line a run:
 *
 *   URI[>URI|<>URI] PRODUCERS CONSUMERS WARM COUNT BYTES AHEAD PER_COMMIT PERSISTENT ASYNC TOPIC DESTINATION USER PASSWORD
 *
 * It answers `ready` when everything is connected and warm, waits for a line, measures, and answers
 * `result SECONDS P50_MS P99_MS` once all is sent, received, acknowledged and closed; then `drained` when the queue
 * is empty again. The second URI is that of the consumers, if they have another broker; with <> every other producer
 * and consumer are the other way round, with a queue of their own. COUNT and WARM are messages over all producers. A
 * run without consumers measures the sends alone.
 *
 * AHEAD is how many messages the producers may be ahead of the consumers (0: any number), in steps of a tenth.
 * PER_COMMIT is the size of a transaction on either side, 0 for none. Every producer and consumer has a connection
 * of its own; a message is a BytesMessage with three string properties.
 */
public class Load {
    private static final long PATIENCE_SECONDS = 100;
    private static final int AHEAD_STEPS = 10;

    private final String uri;
    private final int producerCount;
    private final int consumerCount;
    private final int warmCount;
    private final int count;
    private final byte[] body;
    private final int ahead;
    private final int perCommit;
    private final boolean persistent;
    private final boolean topic;
    private final List<Route> routes = new ArrayList<>();
    private final List<Connection> connections = new ArrayList<>();
    private final List<Producer> producers = new ArrayList<>();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private volatile Phase phase;

    private Load(String[] words) {
        uri = words[0];
        producerCount = Integer.parseInt(words[1]);
        consumerCount = Integer.parseInt(words[2]);
        warmCount = Integer.parseInt(words[3]);
        count = Integer.parseInt(words[4]);
        body = new byte[Integer.parseInt(words[5])];
        Arrays.fill(body, (byte) 'x');
        ahead = Integer.parseInt(words[6]);
        perCommit = Integer.parseInt(words[7]);
        persistent = Boolean.parseBoolean(words[8]);
        topic = Boolean.parseBoolean(words[10]);
        ActiveMQConnectionFactory near = new ActiveMQConnectionFactory(words[12], words[13], uri.split("<?>")[0]);
        ActiveMQConnectionFactory far =
                new ActiveMQConnectionFactory(words[12], words[13], uri.substring(uri.indexOf('>') + 1));
        for (ActiveMQConnectionFactory each : List.of(near, far)) {
            each.setUseAsyncSend(Boolean.parseBoolean(words[9]));
        }
        routes.add(new Route(near, far, topic ? new ActiveMQTopic(words[11]) : new ActiveMQQueue(words[11])));
        if (uri.contains("<>")) {
            routes.add(new Route(far, near, new ActiveMQQueue(words[11] + ".BACK")));
        }
    }

    /** Where producers and consumers connect. */
    private record Route(
            ActiveMQConnectionFactory producers, ActiveMQConnectionFactory consumers, Destination destination) {}

    private Route route(int number) {
        return routes.get(number % routes.size());
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        try {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                new Load(line.split(" ")).run(input);
            }
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1); // the client's threads would keep the process
        }
    }

    private static void report(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private void run(BufferedReader input) throws Exception {
        for (int i = 0; i < consumerCount; i++) {
            listen(open(route(i).consumers()), perCommit, route(i).destination());
        }
        for (int i = 0; i < producerCount; i++) {
            producers.add(new Producer(open(route(i).producers()), route(i).destination()));
        }
        // In rounds no larger than what is measured: a warm backlog must not be the larger one.
        for (int left = warmCount; left > 0; left -= count) {
            measure(Math.min(left, count));
            drain(Math.min(left, count));
        }
        report("ready");
        input.readLine();
        double seconds = measure(count);
        close();
        report(String.format(Locale.ROOT, "result %.6f %.6f %.6f", seconds, quantile(0.5), quantile(0.99)));
        drain(count);
        report("drained");
    }

    private Connection open(ActiveMQConnectionFactory from) throws JMSException {
        Connection connection = from.createConnection();
        connection.setExceptionListener(error -> fail(error));
        connection.start();
        connections.add(connection);
        return connection;
    }

    /** Closes in the order of opening, consumers first: the broker has answered, so it has taken every ack. */
    private void close() throws JMSException {
        for (Connection connection : connections) {
            connection.setExceptionListener(null);
            connection.close();
        }
        connections.clear();
    }

    private void fail(Throwable error) {
        error.printStackTrace();
        failure.compareAndSet(null, error);
        Phase current = phase;
        if (current != null) {
            current.abort();
        }
    }

    private double measure(int messages) throws Exception {
        phase = new Phase(messages, topic ? consumerCount : Math.min(consumerCount, 1));
        List<Thread> threads = new ArrayList<>();
        for (Producer producer : producers) {
            Thread thread = new Thread(() -> producer.send(messages / producerCount));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join(TimeUnit.SECONDS.toMillis(PATIENCE_SECONDS));
        }
        long sent = System.nanoTime();
        phase.awaitDeliveries();
        if (failure.get() != null) {
            throw new IllegalStateException("the run failed", failure.get());
        }
        return (Math.max(sent, phase.endedAt) - phase.begunAt) / 1e9;
    }

    private double quantile(double share) {
        long[] all = producers.stream().flatMapToLong(each -> Arrays.stream(each.latencies)).sorted().toArray();
        return all[Math.min(all.length - 1, (int) (share * all.length))] / 1e6;
    }

    /** Empties the queue a run without consumers has filled. */
    private void drain(int messages) throws Exception {
        if (consumerCount > 0) {
            return;
        }
        phase = new Phase(messages, 1);
        Connection connection = open(route(0).consumers());
        connections.remove(connection);
        listen(connection, 0, route(0).destination());
        phase.awaitDeliveries();
        connection.setExceptionListener(null);
        connection.close();
    }

    private void listen(Connection connection, int transaction, Destination destination) throws JMSException {
        Session session = connection.createSession(transaction > 0, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(destination);
        consumer.setMessageListener(new Listener(session, transaction));
    }

    /** What is sent between two points in time, and how much of it has arrived. */
    private final class Phase {
        final long begunAt = System.nanoTime();
        volatile long endedAt = begunAt;
        private final long expected;
        private final long step;
        private final AtomicLong received = new AtomicLong();
        private final CountDownLatch done = new CountDownLatch(1);
        private final Semaphore steps = new Semaphore(AHEAD_STEPS);

        Phase(int messages, int copies) {
            expected = (long) messages * copies;
            step = (long) (ahead / AHEAD_STEPS) * copies;
            if (expected == 0) {
                done.countDown();
            }
        }

        void received() {
            long now = received.incrementAndGet();
            if (step > 0 && now % step == 0) {
                steps.release();
            }
            if (now == expected) {
                endedAt = System.nanoTime();
                done.countDown();
            }
        }

        void awaitDeliveries() throws InterruptedException {
            if (!done.await(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
                throw new IllegalStateException(received + " of " + expected + " messages arrived");
            }
        }

        void abort() {
            steps.release(1 << 20);
            done.countDown();
        }
    }

    private final class Producer {
        long[] latencies = {};
        private final Session session;
        private final MessageProducer producer;

        Producer(Connection connection, Destination destination) throws JMSException {
            session = connection.createSession(perCommit > 0, Session.AUTO_ACKNOWLEDGE);
            producer = session.createProducer(destination);
            producer.setDeliveryMode(persistent ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT);
        }

        /** Sends, and records the time of each send, or of each commit where there are transactions. */
        void send(int messages) {
            Phase current = phase;
            int recorded = 0;
            latencies = new long[perCommit > 0 ? messages / perCommit : messages];
            int perStep = ahead / AHEAD_STEPS;
            try {
                for (int i = 0; i < messages; i++) {
                    if (perStep > 0 && i % perStep == 0) {
                        current.steps.acquire();
                    }
                    Message message = message();
                    long before = System.nanoTime();
                    producer.send(message);
                    if (perCommit == 0) {
                        latencies[i] = System.nanoTime() - before;
                    } else if ((i + 1) % perCommit == 0) {
                        before = System.nanoTime();
                        session.commit();
                        latencies[recorded++] = System.nanoTime() - before;
                    }
                }
            } catch (JMSException | InterruptedException | RuntimeException error) {
                fail(error);
            }
        }

        private Message message() throws JMSException {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(body);
            message.setStringProperty("region", "eu");
            message.setStringProperty("order", "4711");
            message.setStringProperty("customer", "ACME-0815");
            return message;
        }
    }

    /** Counts messages; the session acknowledges them, or is committed after so many. */
    private final class Listener implements MessageListener {
        private final Session session;
        private final int transaction;
        private int pending;

        Listener(Session session, int transaction) {
            this.session = session;
            this.transaction = transaction;
        }

        @Override
        public void onMessage(Message message) {
            try {
                if (transaction > 0 && ++pending == transaction) {
                    pending = 0;
                    session.commit();
                }
                phase.received();
            } catch (JMSException | RuntimeException error) {
                fail(error);
            }
        }
    }
}
