import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import javax.jms.DeliveryMode;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.QueueBrowser;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/**
 * What a policy changes for the destinations it matches. The broker is started with policies for queues and topics
 * whose names begin with "Policies." and a word for the policy.
 */
public final class Policies extends Area {

    private ActiveMQQueue governed(String policy) {
        return new ActiveMQQueue("Policies." + policy + "." + named(""));
    }

    private ActiveMQTopic governedTopic(String policy) {
        return new ActiveMQTopic("Policies." + policy + "." + named(""));
    }

    private void sendWithPriorities(Session session, Destination queue, int... priorities) throws Exception {
        MessageProducer producer = session.createProducer(queue);
        for (int index = 0; index < priorities.length; index++) {
            producer.send(session.createTextMessage("m" + index + " p" + priorities[index]),
                    DeliveryMode.PERSISTENT, priorities[index], 0);
        }
    }

    private long sendExpiring(Session session, Destination destination, int mode, String text) throws Exception {
        MessageProducer producer = session.createProducer(destination);
        TextMessage message = session.createTextMessage(text);
        message.setStringProperty("check", named(""));
        producer.send(message, mode, 4, 60);
        return message.getJMSExpiration();
    }

    private MessageConsumer deadLetters(Session session) throws Exception {
        return session.createConsumer(new ActiveMQQueue("ActiveMQ.DLQ"), "check = '" + named("") + "'");
    }

    // ------------------------------------------------------------ priorities

    public Object prioritized() throws Exception {
        sendWithPriorities(auto(connect()), governed("prio"), 4, 0, 9, 4, 7, 0, 9);
        return drain(governed("prio"));
    }

    public Object prioritizedWithAWaitingConsumer() throws Exception {
        Session session = auto(connect("jms.prefetchPolicy.queuePrefetch=1&jms.messagePrioritySupported=true"));
        MessageConsumer consumer = session.createConsumer(governed("prio"));
        sendWithPriorities(auto(connect()), governed("prio"), 1, 5, 8, 8);
        return take(consumer, 4).stream().skip(1).toList();
    }

    public Object notPrioritized() throws Exception {
        sendWithPriorities(auto(connect()), queue(), 4, 0, 9, 4);
        return drain(queue());
    }

    // ------------------------------------------------------------ expiry and dead letters

    public Object expired() throws Exception {
        Session session = auto(connect());
        MessageConsumer dead = deadLetters(session);
        sendExpiring(session, governed("shared"), DeliveryMode.PERSISTENT, "late");
        send(session, governed("shared"), "stays");
        ActiveMQMessage message = (ActiveMQMessage) dead.receive(PATIENCE);
        String cause = message.getStringProperty("dlqDeliveryFailureCause");
        return facts(
                "body", body(message), "destination", message.getJMSDestination().toString(),
                "original destination", message.getOriginalDestination().toString(),
                "expiration", message.getJMSExpiration(),
                "cause", cause.replaceFirst("Expiration:[0-9]+", "Expiration:TIME"),
                "delivery mode", message.getJMSDeliveryMode(),
                "left", drain(governed("shared")));
    }

    public Object expiredOnArrivalIsNotDelivered() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        MessageProducer producer = session.createProducer(queue());
        TextMessage late = session.createTextMessage("late");
        late.setJMSExpiration(1);
        late.setStringProperty("check", named(""));
        ((org.apache.activemq.ActiveMQConnection) ((org.apache.activemq.ActiveMQSession) session).getConnection())
                .syncSendPacket(stamped((ActiveMQMessage) late, producer));
        send(session, queue(), "in time");
        return facts("received", drain(consumer, 1), "dead", drain(deadLetters(session), 1));
    }

    /** The message as a producer would send it, had its time run out on the way. */
    private ActiveMQMessage stamped(ActiveMQMessage message, MessageProducer producer) throws Exception {
        var sender = (org.apache.activemq.ActiveMQMessageProducer) producer;
        var info = org.apache.activemq.ActiveMQMessageProducer.class.getDeclaredField("info");
        info.setAccessible(true);
        var id = ((org.apache.activemq.command.ProducerInfo) info.get(sender)).getProducerId();
        message.setJMSDestination(queue());
        message.setDestination(queue());
        message.setProducerId(id);
        message.setMessageId(new org.apache.activemq.command.MessageId(id, 4711));
        message.setPersistent(true);
        message.onSend();
        return message;
    }

    public Object expiredNonPersistentIsDropped() throws Exception {
        Session session = auto(connect());
        MessageConsumer dead = deadLetters(session);
        sendExpiring(session, governed("shared"), DeliveryMode.NON_PERSISTENT, "dropped");
        sendExpiring(session, governed("shared"), DeliveryMode.PERSISTENT, "kept");
        return facts("first dead", body(dead.receive(PATIENCE)), "left", drain(governed("shared")));
    }

    public Object expiredBeforeItsConsumerCame() throws Exception {
        Session session = auto(connect());
        long expiration = sendExpiring(session, queue(), DeliveryMode.PERSISTENT, "late");
        MessageConsumer dead = deadLetters(session);
        while (System.currentTimeMillis() <= expiration) {
            Thread.onSpinWait();
        }
        MessageConsumer consumer = session.createConsumer(queue());
        send(session, queue(), "in time");
        return facts("received", drain(consumer, 1), "dead", body(dead.receive(PATIENCE)));
    }

    public Object individualDeadLetters() throws Exception {
        Session session = auto(connect());
        sendExpiring(session, governed("individual"), DeliveryMode.PERSISTENT, "late");
        var own = new ActiveMQQueue("ActiveMQ.DLQ.Queue." + governed("individual").getPhysicalName());
        Message dead = session.createConsumer(own).receive(PATIENCE);
        return facts("body", body(dead), "destination", dead.getJMSDestination().toString());
    }

    public Object nonPersistentDeadLetters() throws Exception {
        Session session = auto(connect());
        sendExpiring(session, governed("transient"), DeliveryMode.NON_PERSISTENT, "late");
        var own = new ActiveMQQueue("ActiveMQ.DLQ.Queue." + governed("transient").getPhysicalName());
        Message dead = session.createConsumer(own).receive(PATIENCE);
        return facts("body", body(dead), "delivery mode", dead.getJMSDeliveryMode(),
                "original mode", dead.getStringProperty("originalDeliveryMode"));
    }

    public Object discardedDeadLetters() throws Exception {
        Session session = auto(connect());
        MessageConsumer dead = deadLetters(session);
        sendExpiring(session, governed("discarding"), DeliveryMode.PERSISTENT, "dropped");
        sendExpiring(session, governed("unexpired"), DeliveryMode.PERSISTENT, "dropped too");
        sendExpiring(session, governed("shared"), DeliveryMode.PERSISTENT, "kept");
        return facts("first dead", body(dead.receive(PATIENCE)), "left", drain(dead),
                "discarding", drain(governed("discarding")), "unexpired", drain(governed("unexpired")));
    }

    // ------------------------------------------------------------ retroactive consumers, slow consumers

    private ActiveMQTopic retroactive(String policy) {
        return new ActiveMQTopic(governedTopic(policy).getPhysicalName() + "?consumer.retroactive=true");
    }

    public Object lastThree() throws Exception {
        Session session = auto(connect());
        fill(governedTopic("count"), 5);
        MessageConsumer plain = session.createConsumer(governedTopic("count"));
        MessageConsumer late = session.createConsumer(retroactive("count"));
        List<Object> recovered = take(late, 3);
        fill(governedTopic("count"), 1);
        return facts("recovered", recovered, "live", take(late, 1), "plain", drain(plain, 1));
    }

    public Object lastImage() throws Exception {
        fill(governedTopic("last"), 5);
        return drain(auto(connect()).createConsumer(governedTopic("last")), 1);
    }

    public Object retroactiveWithoutAPolicy() throws Exception {
        Session session = auto(connect());
        fill(topic(), 3);
        MessageConsumer late = session.createConsumer(new ActiveMQTopic(named("") + "?consumer.retroactive=true"));
        fill(topic(), 1);
        return drain(late, 1);
    }

    public Object retroactiveWithASelector() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(governedTopic("count"));
        for (int number = 0; number < 5; number++) {
            TextMessage message = session.createTextMessage("m" + number);
            message.setIntProperty("n", number);
            producer.send(message);
        }
        return drain(session.createConsumer(retroactive("count"), "n <> 3"), 2);
    }

    public Object slowConsumersMissTheOldest() throws Exception {
        Session session = client(connect("jms.prefetchPolicy.topicPrefetch=2"));
        MessageConsumer slow = session.createConsumer(governedTopic("limit"));
        var connection = connect();
        sendTransient(auto(connection), governedTopic("limit"), numbered(0, 20));
        awaitBroker(connection);
        List<Object> received = new ArrayList<>();
        for (int number = 0; number < 7; number++) {
            Message message = slow.receive(PATIENCE);
            received.add(body(message));
            message.acknowledge();
        }
        return received;
    }

    // ------------------------------------------------------------ browsers

    public Object browserStopsAtItsPage() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(governed("page"));
        for (int number = 0; number < 7; number++) {
            TextMessage message = session.createTextMessage("m" + number);
            message.setIntProperty("n", number);
            producer.send(message);
        }
        List<Object> all = browsed(session, null);
        List<Object> selected = browsed(session, "n > 2");
        var holding = connect("jms.prefetchPolicy.queuePrefetch=2");
        take(client(holding).createConsumer(governed("page")), 2);
        List<Object> held = browsed(session, null);
        holding.close();
        return facts("all", all, "selected", selected, "held", held, "left", drain(governed("page")));
    }

    private List<Object> browsed(Session session, String selector) throws Exception {
        QueueBrowser browser = session.createBrowser(governed("page"), selector);
        List<Object> bodies = new ArrayList<>();
        for (Enumeration<?> found = browser.getEnumeration(); found.hasMoreElements(); ) {
            bodies.add(body((Message) found.nextElement()));
        }
        browser.close();
        return bodies;
    }

    // ------------------------------------------------------------ no space

    /** Two messages that the consumer has fill the memory; smaller ones ActiveMQ would write to disk before it is full. */
    public Object sendFailsAfterATime() throws Exception {
        Session holder = client(connect());
        MessageConsumer consumer = holder.createConsumer(governed("impatient"));
        Session session = auto(connect("jms.alwaysSyncSend=true"));
        MessageProducer producer = session.createProducer(governed("impatient"));
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        List<Object> sent = new ArrayList<>();
        String refused = "nothing";
        long began = System.nanoTime();
        while (refused.equals("nothing") && sent.size() < 100) {
            String body = "m" + sent.size();
            began = System.nanoTime();
            try {
                producer.send(large(session, body));
                sent.add(body);
            } catch (JMSException refusal) {
                refused = refusal.getClass().getName();
            }
        }
        boolean waited = System.nanoTime() - began >= 900_000_000L;
        List<Object> received = new ArrayList<>();
        Message last = null;
        while (received.size() < sent.size()) {
            last = consumer.receive(PATIENCE);
            received.add(last.getStringProperty("name"));
        }
        var sending = CompletableFuture.supplyAsync(() -> {
            try {
                producer.send(large(session, "after the wait"));
                return "sent";
            } catch (JMSException refusal) {
                return refusal.getClass().getName();
            }
        });
        Thread.sleep(SILENCE);
        last.acknowledge();
        String outcome = sending.get();
        producer.send(large(session, "afterwards"));
        List<Object> next = new ArrayList<>();
        for (Message message; (message = next(consumer, SILENCE)) != null; ) {
            next.add(message.getStringProperty("name"));
        }
        return facts("refused", refused, "waited", waited, "received as sent", received.equals(sent),
                "sent while one waits", outcome, "next", next);
    }

    private static Message large(Session session, String name) throws JMSException {
        TextMessage message = session.createTextMessage("x".repeat(120_000));
        message.setStringProperty("name", name);
        return message;
    }

    // ------------------------------------------------------------ who is served

    public Object policyReplacesTheDefaultWindow() throws Exception {
        fill(governed("prefetch"), 5);
        Session holder = client(connect());
        MessageConsumer first = holder.createConsumer(governed("prefetch"));
        MessageConsumer second = auto(connect("jms.prefetchPolicy.queuePrefetch=10")).createConsumer(governed("prefetch"));
        return facts("second", take(second, 3), "first", take(first, 2));
    }

    public Object everyConsumerExclusive() throws Exception {
        Session session = auto(connect());
        MessageConsumer first = session.createConsumer(governed("exclusive"));
        MessageConsumer second = session.createConsumer(governed("exclusive"));
        fill(governed("exclusive"), 4);
        return facts("first", take(first, 4), "second silent", silent(second));
    }

    public Object dispatchStartsForTwo() throws Exception {
        fill(governed("together"), 4);
        Session session = auto(connect());
        MessageConsumer first = session.createConsumer(governed("together"));
        boolean firstSilent = silent(first);
        MessageConsumer second = auto(connect()).createConsumer(governed("together"));
        List<Object> toFirst = take(first, 2);
        List<Object> toSecond = take(second, 2);
        second.close();
        send(session, governed("together"), "m4");
        List<Object> toTheOne = take(first, 1);
        first.close();
        send(session, governed("together"), numbered(5, 9));
        MessageConsumer third = session.createConsumer(governed("together"));
        boolean thirdSilent = silent(third);
        MessageConsumer fourth = auto(connect()).createConsumer(governed("together"));
        return facts("first at first", firstSilent, "first", toFirst, "second", toSecond, "one is left", toTheOne,
                "third at first", thirdSilent, "third", take(third, 2), "fourth", take(fourth, 2));
    }

    public Object dispatchStartsAfterATime() throws Exception {
        fill(governed("later"), 2);
        fill(governed("alone"), 1);
        // By the clock: a busy machine listens for nothing to come again and again, until it has come.
        Session session = auto(connect());
        long began = System.nanoTime();
        List<Object> toLater = take(session.createConsumer(governed("later")), 2);
        boolean laterWaited = System.nanoTime() - began >= 790_000_000L;
        session = auto(connect());
        began = System.nanoTime();
        List<Object> toAlone = take(session.createConsumer(governed("alone")), 1);
        boolean aloneWaited = System.nanoTime() - began >= 990_000_000L;
        return facts("later waited", laterWaited, "later", toLater, "alone waited", aloneWaited, "alone", toAlone);
    }

    public Object strictOrder() throws Exception {
        Session session = client(connect("jms.prefetchPolicy.queuePrefetch=3"));
        MessageConsumer first = session.createConsumer(governed("strict"));
        MessageConsumer second = session.createConsumer(governed("strict"));
        fill(governed("strict"), 5);
        return facts("first", take(first, 3), "second", take(second, 2));
    }
}
