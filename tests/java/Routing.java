import java.util.ArrayList;
import java.util.List;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** One name, several destinations: composites, wildcards, virtual topics; and the end of a destination. */
public final class Routing extends Area {

    /** What came, with where it was and where it was first sent to. */
    private static Object routed(Message message) throws Exception {
        if (message == null) {
            return "nothing";
        }
        return List.of(body(message), message.getJMSDestination().toString(),
                String.valueOf(((ActiveMQMessage) message).getOriginalDestination()));
    }

    private ActiveMQQueue composite(String... parts) {
        return new ActiveMQQueue(String.join(",", parts));
    }

    // ------------------------------------------------------------ composites

    public Object compositeSend() throws Exception {
        Session session = auto(connect());
        MessageConsumer listener = session.createConsumer(topic("t"));
        var all = composite(named("a"), named("b"), "topic://" + named("t"));
        var message = session.createTextMessage("m");
        session.createProducer(all).send(message);
        Message a = session.createConsumer(queue("a")).receive(PATIENCE);
        Message b = session.createConsumer(queue("b")).receive(PATIENCE);
        Message t = listener.receive(PATIENCE);
        boolean shared = a.getJMSMessageID().equals(message.getJMSMessageID())
                && b.getJMSMessageID().equals(message.getJMSMessageID());
        String original = ((ActiveMQMessage) a).getOriginalDestination().getPhysicalName();
        return facts(
                "a", a.getJMSDestination().toString(), "b", b.getJMSDestination().toString(),
                "t", t.getJMSDestination().toString(), "same id", shared,
                "original", List.of(original.split(",")).stream().sorted().toList());
    }

    public Object compositeSendInATransaction() throws Exception {
        Session session = transacted(connect());
        send(session, composite(named("a"), named("b")), "m0", "m1");
        List<Object> before = browse(auto(connect()), queue("a"), null);
        session.commit();
        return facts("before", before, "a", drain(queue("a")), "b", drain(queue("b")));
    }

    public Object compositeConsumer() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(composite(named("a"), named("b")));
        fill(queue("a"), 1);
        Object a = routed(consumer.receive(PATIENCE));
        fill(queue("b"), 1);
        Object b = routed(consumer.receive(PATIENCE));
        consumer.close();
        return facts("a", a, "b", b, "left", drain(composite(named("a"), named("b"))));
    }

    public Object compositeTopicConsumer() throws Exception {
        MessageConsumer consumer =
                auto(connect()).createConsumer(new ActiveMQTopic(named("a") + "," + named("b")));
        fill(topic("a"), 1);
        Object a = routed(consumer.receive(PATIENCE));
        fill(topic("b"), 1);
        return facts("a", a, "b", routed(consumer.receive(PATIENCE)));
    }

    // ------------------------------------------------------------ wildcards

    public Object wildcardQueues() throws Exception {
        fill(queue("a"), 1);
        MessageConsumer consumer = auto(connect()).createConsumer(queue(">"));
        List<Object> received = new ArrayList<>(List.of(routed(consumer.receive(PATIENCE))));
        fill(queue("b.c"), 1);
        received.add(routed(consumer.receive(PATIENCE)));
        fill(queue(""), 1);
        received.add(routed(consumer.receive(PATIENCE)));
        return received;
    }

    public Object starIsOneLevel() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue("*.x"));
        fill(queue("a.b.x"), 1);
        fill(queue("x"), 1);
        fill(queue("a.x"), 1);
        Object first = routed(consumer.receive(PATIENCE));
        return facts("first", first, "rest", drain(consumer));
    }

    public Object wildcardTopics() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(topic("*"));
        fill(topic("a.b"), 1);
        fill(topic("a"), 1);
        Object first = routed(consumer.receive(PATIENCE));
        return facts("first", first, "rest", drain(consumer));
    }

    public Object wildcardConsumerSharesAWindow() throws Exception {
        Session session = client(connect("jms.prefetchPolicy.queuePrefetch=2"));
        MessageConsumer consumer = session.createConsumer(queue("*"));
        fill(queue("a"), 2);
        fill(queue("b"), 2);
        List<Object> received = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            Message message = consumer.receive(PATIENCE);
            received.add(routed(message));
            message.acknowledge();
        }
        return received.stream().map(Object::toString).sorted().toList();
    }

    public Object sendingToAWildcard() throws Exception {
        send(auto(connect()), queue("*"), "literal");
        return drain(queue("*"));
    }

    // ------------------------------------------------------------ virtual topics

    private ActiveMQQueue virtual(String consumer, String suffix) {
        return new ActiveMQQueue("Consumer." + consumer + ".VirtualTopic." + named(suffix));
    }

    private ActiveMQTopic virtualTopic(String suffix) {
        return new ActiveMQTopic("VirtualTopic." + named(suffix));
    }

    public Object virtualTopicFillsItsQueues() throws Exception {
        Session session = auto(connect());
        MessageConsumer a = session.createConsumer(virtual("a", "x"));
        session.createConsumer(virtual("b", "x")).close();
        MessageConsumer listener = session.createConsumer(virtualTopic("x"));
        fill(virtualTopic("x"), 2);
        return facts("a", List.of(routed(a.receive(PATIENCE)), routed(a.receive(PATIENCE))),
                "b", drain(virtual("b", "x")), "topic", take(listener, 2));
    }

    public Object virtualTopicWithoutQueues() throws Exception {
        fill(virtualTopic("x"), 1);
        MessageConsumer late = auto(connect()).createConsumer(virtual("late", "x"));
        fill(virtualTopic("x"), 1);
        return drain(late, 1);
    }

    public Object virtualTopicQueuesShareTheWork() throws Exception {
        Session session = auto(connect());
        MessageConsumer first = session.createConsumer(virtual("a", "x"));
        MessageConsumer second = session.createConsumer(virtual("a", "x"));
        fill(virtualTopic("x"), 4);
        List<List<Object>> shares = new ArrayList<>(List.of(take(first, 2), take(second, 2)));
        shares.sort((a, b) -> a.toString().compareTo(b.toString()));
        return shares;
    }

    public Object virtualTopicInATransaction() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(virtual("a", "x"));
        Session session = transacted(connect());
        send(session, virtualTopic("x"), "never");
        session.rollback();
        send(session, virtualTopic("x"), "m0");
        boolean silent = silent(consumer);
        session.commit();
        return facts("silent", silent, "received", take(consumer, 1));
    }

    public Object virtualTopicWildcardConsumer() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(virtual("w", ">"));
        fill(virtualTopic("x"), 1);
        Object first = body(consumer.receive(PATIENCE));
        fill(virtualTopic("y.z"), 1);
        return facts("x", first, "y", body(consumer.receive(PATIENCE)), "rest", drain(consumer));
    }

    public Object virtualTopicSelector() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(virtual("a", "x"), "n = 1");
        var producer = session.createProducer(virtualTopic("x"));
        for (int number = 0; number < 3; number++) {
            var message = session.createTextMessage("m" + number);
            message.setIntProperty("n", number);
            producer.send(message);
        }
        List<Object> received = take(consumer, 1);
        consumer.close();
        return facts("received", received, "left", drain(virtual("a", "x")));
    }

    // ------------------------------------------------------------ the end of a destination

    private String destroy(ActiveMQDestination destination) throws Exception {
        ActiveMQConnection connection = connect();
        return thrown(act(() -> connection.destroyDestination(destination)));
    }

    public Object destroyUnused() throws Exception {
        fill(queue(), 2);
        return facts("destroy", destroy(queue()), "left", drain(queue()));
    }

    public Object destroyInUse() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        String refused = destroy(queue());
        fill(queue(), 1);
        return facts("destroy", refused, "consumer goes on", take(consumer, 1));
    }

    public Object destroyUnknown() throws Exception {
        return destroy(queue());
    }

    public Object destroyWithAProducer() throws Exception {
        Session session = auto(connect());
        var producer = session.createProducer(queue());
        producer.send(session.createTextMessage("gone"));
        String destroyed = destroy(queue());
        producer.send(session.createTextMessage("after"));
        return facts("destroy", destroyed, "left", drain(queue()));
    }

    public Object destroyTopicWithADurableSubscription() throws Exception {
        var connection = identified(named(""));
        auto(connection).createDurableSubscriber(topic(), "s").close();
        String refused = destroy(topic());
        auto(connection).unsubscribe("s");
        return facts("subscribed", refused, "unsubscribed", destroy(topic()));
    }
}
