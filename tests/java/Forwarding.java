import java.util.ArrayList;
import java.util.List;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** Destinations that only activemq.xml of this directory makes: composites, a virtual topic, those that are there at the start. */
public final class Forwarding extends Area {

    private static final long HOUR = 3_600_000;
    private static final ActiveMQQueue ORDERS = new ActiveMQQueue("ORDERS.ALL");
    private static final ActiveMQQueue BILLING = new ActiveMQQueue("BILLING");
    private static final ActiveMQTopic AUDIT = new ActiveMQTopic("AUDIT");

    private void sendAmounts(Session session, ActiveMQDestination destination, int... amounts) throws Exception {
        MessageProducer producer = session.createProducer(destination);
        for (int amount : amounts) {
            Message message = session.createTextMessage("m" + amount);
            message.setIntProperty("amount", amount);
            producer.send(message);
        }
        producer.close();
    }

    private static Object shown(Message message) throws Exception {
        return message == null ? "nothing" : List.of(body(message), message.getJMSDestination().toString(),
                String.valueOf(((ActiveMQMessage) message).getOriginalDestination()), properties(message));
    }

    public Object compositeQueue() throws Exception {
        MessageConsumer audit = auto(connect()).createConsumer(AUDIT);
        sendAmounts(auto(connect()), ORDERS, 10, 5000);
        Session session = auto(connect());
        MessageConsumer billing = session.createConsumer(BILLING);
        Object first = shown(billing.receive(PATIENCE));
        Object second = shown(billing.receive(PATIENCE));
        billing.close();
        return facts("first", first, "second", second, "audit", shown(audit.receive(PATIENCE)),
                "more", silent(audit), "itself", drain(ORDERS), "left", drain(BILLING));
    }

    public Object compositeQueueInATransaction() throws Exception {
        MessageConsumer audit = auto(connect()).createConsumer(AUDIT);
        Session session = transacted(connect());
        sendAmounts(session, ORDERS, 6000);
        session.rollback();
        sendAmounts(session, ORDERS, 10, 7000);
        boolean silent = silent(audit);
        session.commit();
        return facts("silent", silent, "audit", take(audit, 1), "itself", drain(ORDERS), "billing", drain(BILLING));
    }

    public Object compositeTopic() throws Exception {
        Session session = auto(connect());
        MessageConsumer itself = session.createConsumer(new ActiveMQTopic("PRICES.ALL"));
        MessageConsumer other = session.createConsumer(new ActiveMQTopic("PRICES.EUR"));
        fill(new ActiveMQTopic("PRICES.ALL"), 2);
        return facts("other", shown(other.receive(PATIENCE)), "next", take(other, 1), "itself", silent(itself),
                "queue", drain(new ActiveMQQueue("PRICES.ARCHIVE")));
    }

    public Object virtualTopicThatIsAwareOfSelectors() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("Group.a.EVENTS.x");
        MessageConsumer consumer = auto(connect()).createConsumer(queue, "amount > 1");
        sendAmounts(auto(connect()), new ActiveMQTopic("EVENTS.x"), 1, 2);
        Object received = shown(consumer.receive(PATIENCE));
        consumer.close();
        return facts("received", received, "left", drain(queue));
    }

    public Object timeToLiveHasACeiling() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        for (long hours : List.of(0L, 1L, 48L)) {
            producer.setTimeToLive(hours * HOUR);
            producer.send(session.createTextMessage(hours + " h"));
        }
        MessageConsumer consumer = session.createConsumer(queue());
        List<Object> received = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            Message message = consumer.receive(PATIENCE);
            long expiration = message.getJMSExpiration();
            received.add(List.of(body(message), expiration == 0 ? 0L : expiration - message.getJMSTimestamp()));
        }
        return received;
    }

    public Object destinationsOfTheStart() throws Exception {
        var source = connect().getDestinationSource();
        awaitBroker(connect());
        return facts("queue", source.getQueues().contains(new ActiveMQQueue("ORDERS.IN")),
                "topic", source.getTopics().contains(new ActiveMQTopic("PRICES.EUR")));
    }
}
