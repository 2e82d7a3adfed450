import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.RedeliveryPolicy;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;

/** Acknowledgement modes, redelivery with its marks, and the way of a message that no consumer can handle. */
public final class Acknowledgements extends Area {

    private static final ActiveMQQueue DEAD_LETTERS = new ActiveMQQueue("ActiveMQ.DLQ");

    // ------------------------------------------------------------ modes

    public Object autoAcknowledge() throws Exception {
        fill(queue(), 4);
        Connection connection = connect();
        List<Object> received = takeMarked(auto(connection).createConsumer(queue()), 4);
        connection.close();
        return facts("received", received, "left", drain(queue()));
    }

    public Object autoAcknowledgeLeavesWhatWasNotReceived() throws Exception {
        fill(queue(), 4);
        Connection connection = connect();
        List<Object> received = take(auto(connection).createConsumer(queue()), 2);
        connection.close();
        return facts("received", received, "left", takeMarked(auto(connect()).createConsumer(queue()), 2));
    }

    public Object clientAcknowledge() throws Exception {
        fill(queue(), 6);
        Session session = client(connect(AT_ONCE));
        MessageConsumer consumer = session.createConsumer(queue());
        take(consumer, 2);
        consumer.receive(PATIENCE).acknowledge();
        List<Object> unacknowledged = takeMarked(consumer, 2);
        session.recover();
        List<Object> again = takeMarked(consumer, 3);
        consumer.close();
        return facts("unacknowledged", unacknowledged, "again", again, "left", drain(queue()));
    }

    public Object clientAcknowledgeCoversTheSession() throws Exception {
        fill(queue("a"), 2);
        fill(queue("b"), 2);
        Session session = client(connect());
        MessageConsumer a = session.createConsumer(queue("a"));
        MessageConsumer b = session.createConsumer(queue("b"));
        take(a, 2);
        b.receive(PATIENCE).acknowledge();
        session.close();
        return facts("a", drain(queue("a")), "b", drain(queue("b")));
    }

    public Object dupsOk() throws Exception {
        fill(queue(), 5);
        Connection connection = connect();
        Session session = connection.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
        List<Object> received = takeMarked(session.createConsumer(queue()), 5);
        connection.close();
        return facts("received", received, "left", drain(queue()));
    }

    public Object dupsOkOnATopic() throws Exception {
        Connection connection = connect("jms.prefetchPolicy.topicPrefetch=4");
        Session session = connection.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(topic());
        fill(topic(), 20);
        return take(consumer, 20).size();
    }

    public Object individual() throws Exception {
        fill(queue(), 5);
        Connection connection = connect();
        Session session = connection.createSession(false, ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue());
        for (int number = 0; number < 5; number++) {
            Message message = consumer.receive(PATIENCE);
            if (number % 2 == 1) {
                message.acknowledge();
            }
        }
        connection.close();
        return takeMarked(auto(connect()).createConsumer(queue()), 3);
    }

    public Object individualOutOfOrder() throws Exception {
        fill(queue(), 4);
        Connection connection = connect();
        Session session = connection.createSession(false, ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue());
        List<Message> held = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            held.add(consumer.receive(PATIENCE));
        }
        held.get(3).acknowledge();
        held.get(0).acknowledge();
        connection.close();
        return drain(queue());
    }

    /** With a window of two and only individual acknowledgements, every message still comes. */
    public Object individualRefillsTheWindow() throws Exception {
        fill(queue(), 6);
        Connection connection = connect("jms.prefetchPolicy.queuePrefetch=2");
        Session session = connection.createSession(false, ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue());
        List<Object> received = new ArrayList<>();
        for (int number = 0; number < 6; number++) {
            Message message = consumer.receive(PATIENCE);
            received.add(body(message));
            message.acknowledge();
        }
        return received;
    }

    public Object acknowledgedSynchronously() throws Exception {
        fill(queue(), 4);
        Connection connection = connect("jms.sendAcksAsync=false");
        List<Object> received = take(auto(connection).createConsumer(queue()), 3);
        return facts("received", received, "browsed", browse(auto(connect()), queue(), null));
    }

    public Object optimizedAcknowledge() throws Exception {
        fill(queue(), 50);
        Connection connection = connect("jms.optimizeAcknowledge=true&jms.prefetchPolicy.queuePrefetch=10");
        int received = take(auto(connection).createConsumer(queue()), 50).size();
        connection.close();
        return facts("received", received, "left", drain(queue()));
    }

    public Object optimizedAcknowledgeOnATopic() throws Exception {
        Connection connection = connect("jms.optimizeAcknowledge=true&jms.prefetchPolicy.topicPrefetch=10");
        MessageConsumer consumer = auto(connection).createConsumer(topic());
        fill(topic(), 100);
        return take(consumer, 100).size();
    }

    // ------------------------------------------------------------ redelivery

    public Object recoverCountsDeliveries() throws Exception {
        fill(queue(), 2);
        Session session = client(connect(AT_ONCE));
        MessageConsumer consumer = session.createConsumer(queue());
        List<Object> rounds = new ArrayList<>();
        for (int round = 0; round < 3; round++) {
            rounds.add(takeMarked(consumer, 2));
            session.recover();
        }
        return rounds;
    }

    /** An orderly close reports which messages the application has seen: only those count. */
    public Object closedConsumerReportsWhatItHasSeen() throws Exception {
        fill(queue(), 4);
        Session session = client(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        take(consumer, 2);
        consumer.close();
        return takeMarked(auto(connect()).createConsumer(queue()), 4);
    }

    public Object closedSessionReportsItToo() throws Exception {
        fill(queue(), 4);
        Session session = client(connect());
        take(session.createConsumer(queue()), 2);
        session.close();
        return takeMarked(auto(connect()).createConsumer(queue()), 4);
    }

    /** A lost connection reports nothing: whatever was sent to it may have been seen. */
    public Object cutConnectionMarksWhatWasSentToIt() throws Exception {
        fill(queue(), 4);
        ActiveMQConnection connection = connect();
        take(client(connection).createConsumer(queue()), 2);
        cut(connection);
        return takeMarked(auto(connect()).createConsumer(queue()), 4);
    }

    public Object countsAddUpOverConsumers() throws Exception {
        fill(queue(), 1);
        List<Object> seen = new ArrayList<>();
        for (int round = 0; round < 3; round++) {
            Session session = client(connect());
            seen.add(takeMarked(session.createConsumer(queue()), 1));
            session.close();
        }
        return seen;
    }

    public Object returnedMessagesComeBeforeYounger() throws Exception {
        fill(queue(), 4);
        Session session = client(connect());
        take(session.createConsumer(queue()), 3);
        send(auto(connect()), queue(), "young");
        session.close();
        return drain(queue());
    }

    // ------------------------------------------------------------ dead letters

    public Object poison() throws Exception {
        Connection connection = connect(AT_ONCE + "&jms.redeliveryPolicy.maximumRedeliveries=2");
        Session plain = auto(connection);
        MessageProducer producer = plain.createProducer(queue());
        TextMessage sent = plain.createTextMessage("bad");
        sent.setStringProperty("check", "poison");
        sent.setIntProperty("number", 5);
        sent.setJMSCorrelationID("c");
        sent.setJMSType("t");
        producer.send(sent, DeliveryMode.PERSISTENT, 7, 60_000);
        send(plain, queue(), "good");

        Session session = transacted(connection);
        MessageConsumer consumer = session.createConsumer(queue());
        List<Object> deliveries = new ArrayList<>();
        Message message = consumer.receive(PATIENCE);
        while (body(message).equals("bad")) {
            deliveries.add(marked(message));
            session.rollback();
            message = consumer.receive(PATIENCE);
        }
        session.commit();
        Message dead = plain.createConsumer(DEAD_LETTERS, "check = 'poison'").receive(PATIENCE);
        return facts("deliveries", deliveries, "then", marked(message), "dead", described(dead),
                "same id", dead.getJMSMessageID().equals(sent.getJMSMessageID()),
                "original expiration kept", dead.getLongProperty("originalExpiration") == sent.getJMSExpiration());
    }

    private static Map<String, Object> described(Message dead) throws Exception {
        return facts(
                "body", body(dead),
                "destination", dead.getJMSDestination().toString(),
                "original destination", String.valueOf(((ActiveMQMessage) dead).getOriginalDestination()),
                "delivery mode", dead.getJMSDeliveryMode(),
                "priority", dead.getJMSPriority(),
                "expiration", dead.getJMSExpiration(),
                "correlation id", dead.getJMSCorrelationID(),
                "type", dead.getJMSType(),
                "redelivered", dead.getJMSRedelivered(),
                "deliveries", dead.getIntProperty("JMSXDeliveryCount"),
                "number", dead.getIntProperty("number"),
                "cause", dead.getStringProperty("dlqDeliveryFailureCause").replaceFirst(":RedeliveryPolicy.*", ""),
                "properties", properties(dead).keySet());
    }

    public Object poisonThatIsNotPersistentIsDropped() throws Exception {
        Connection connection = connect("jms.redeliveryPolicy.maximumRedeliveries=0");
        Session session = transacted(connection);
        Session plain = auto(connection);
        MessageProducer producer = plain.createProducer(queue());
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        for (String text : List.of("bad", "good")) {
            TextMessage sent = plain.createTextMessage(text);
            sent.setStringProperty("check", "dropped");
            producer.send(sent);
        }
        MessageConsumer consumer = session.createConsumer(queue());
        List<Object> received = take(consumer, 1);
        session.rollback();
        received.addAll(take(consumer, 1));
        session.commit();
        return facts("received", received,
                "dead letters", browse(plain, DEAD_LETTERS, "check = 'dropped'"), "left", drain(queue()));
    }

    public Object listenerThatThrows() throws Exception {
        ActiveMQConnection connection = unstarted("");
        RedeliveryPolicy policy = new RedeliveryPolicy();
        policy.setMaximumRedeliveries(2);
        policy.setInitialRedeliveryDelay(0);
        policy.setRedeliveryDelay(0);
        connection.setRedeliveryPolicy(policy);
        Session session = auto(connection);
        TextMessage sent = session.createTextMessage("bad");
        sent.setStringProperty("check", "listener");
        session.createProducer(queue()).send(sent);
        send(session, queue(), "good");
        List<Object> deliveries = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch good = new CountDownLatch(1);
        auto(connection).createConsumer(queue()).setMessageListener(message -> {
            deliveries.add(thrown(act(() -> deliveries.add(marked(message)))));
            if (message.toString().contains("check = listener") || message.toString().contains("check=listener")) {
                throw new IllegalArgumentException("not this one");
            }
            good.countDown();
        });
        connection.start();
        boolean came = good.await(PATIENCE, TimeUnit.MILLISECONDS);
        deliveries.removeIf("nothing"::equals);
        Message dead = auto(connect()).createConsumer(DEAD_LETTERS, "check = 'listener'").receive(PATIENCE);
        String cause = dead.getStringProperty("dlqDeliveryFailureCause");
        return facts("deliveries", deliveries, "good came", came, "dead", body(dead),
                "cause names the exception", cause.contains("IllegalArgumentException: not this one"));
    }

    public Object deadLetterIsANormalMessage() throws Exception {
        Connection connection = connect("jms.redeliveryPolicy.maximumRedeliveries=0");
        Session plain = auto(connection);
        TextMessage sent = plain.createTextMessage("bad");
        sent.setStringProperty("check", "normal");
        plain.createProducer(queue()).send(sent);
        Session session = transacted(connection);
        session.createConsumer(queue()).receive(PATIENCE);
        session.rollback();
        Session other = transacted(connection);
        MessageConsumer consumer = other.createConsumer(DEAD_LETTERS, "check = 'normal'");
        Object first = marked(consumer.receive(PATIENCE));
        other.rollback();
        consumer.close();
        return facts("dead", first, "poison on the dead letter queue is discarded",
                browse(plain, DEAD_LETTERS, "check = 'normal'"));
    }
}
