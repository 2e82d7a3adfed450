import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.jms.Connection;
import javax.jms.Destination;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** Advisories that the policies of these destinations ask for. */
public final class PolicyAdvisories extends Area {

    private MessageConsumer listen(String kind, Destination about) throws Exception {
        ActiveMQDestination destination = (ActiveMQDestination) about;
        String domain = destination.isQueue() ? "Queue." : "Topic.";
        String name = "ActiveMQ.Advisory." + kind + "." + domain + destination.getPhysicalName();
        return auto(connect()).createConsumer(new ActiveMQTopic(name));
    }

    /** What an advisory has: the class of its subject and that one's text, and its properties without the broker's. */
    private static Object shown(Message advisory) throws Exception {
        if (advisory == null) {
            return "nothing";
        }
        Object data = ((ActiveMQMessage) advisory).getDataStructure();
        Map<String, Object> properties = new TreeMap<>(properties(advisory));
        properties.keySet().removeIf(name -> name.startsWith("originBroker"));
        for (String id : List.of("orignalMessageId", "consumerId")) {
            properties.computeIfPresent(id, (name, value) -> ((String) value).split(" ")[0]);
        }
        String text = data instanceof TextMessage message ? String.valueOf(message.getText()) : "-";
        return facts("subject", data == null ? "null" : data.getClass().getSimpleName(), "text", text, "properties",
                properties, "type", ((ActiveMQMessage) advisory).getType());
    }

    /** What comes, with all patience for a number of advisories that must come. */
    private static List<Object> shownAll(MessageConsumer consumer, int least) throws Exception {
        List<Object> found = new ArrayList<>();
        for (Message advisory : all(consumer, least)) {
            found.add(shown(advisory));
        }
        return found;
    }

    private ActiveMQQueue withBody() {
        return new ActiveMQQueue(named("").replace("PolicyAdvisories.", "PolicyAdvisories.body."));
    }

    public Object accepted() throws Exception {
        MessageConsumer listener = listen("MessageDelivered", queue());
        send(auto(connect()), queue(), "a");
        return shownAll(listener, 1);
    }

    public Object acceptedByATopic() throws Exception {
        MessageConsumer listener = listen("MessageDelivered", topic());
        send(auto(connect()), topic(), "a");
        return shownAll(listener, 1);
    }

    public Object acceptedWithItsBody() throws Exception {
        MessageConsumer listener = listen("MessageDelivered", withBody());
        send(auto(connect()), withBody(), "a");
        return shownAll(listener, 1);
    }

    public Object acceptedInATransaction() throws Exception {
        MessageConsumer listener = listen("MessageDelivered", queue());
        Session session = transacted(connect());
        send(session, queue(), "a", "b");
        boolean before = !silent(listener);
        session.commit();
        return facts("before", before, "after", shownAll(listener, 2).size());
    }

    public Object consumed() throws Exception {
        MessageConsumer listener = listen("MessageConsumed", queue());
        fill(queue(), 2);
        Session session = client(connect());
        Message first = session.createConsumer(queue()).receive(PATIENCE);
        boolean before = !silent(listener);
        first.acknowledge();
        return facts("before", before, "after", shownAll(listener, 1));
    }

    public Object consumedInATransaction() throws Exception {
        MessageConsumer listener = listen("MessageConsumed", queue());
        fill(queue(), 1);
        Session session = transacted(connect());
        session.createConsumer(queue()).receive(PATIENCE);
        awaitBroker(connect());
        boolean before = !silent(listener);
        session.commit();
        return facts("before", before, "after", shownAll(listener, 1).size());
    }

    public Object consumedByADurableSubscription() throws Exception {
        MessageConsumer listener = listen("MessageConsumed", topic());
        Connection connection = identified(named("client"));
        MessageConsumer durable = auto(connection).createDurableSubscriber(topic(), "s");
        send(auto(connection), topic(), "a");
        take(durable, 1);
        return shownAll(listener, 1);
    }

    public Object consumedByAPlainSubscription() throws Exception {
        MessageConsumer listener = listen("MessageConsumed", topic());
        Connection connection = connect();
        MessageConsumer plain = auto(connection).createConsumer(topic());
        send(auto(connection), topic(), "a");
        take(plain, 1);
        return shownAll(listener, 0);
    }

    public Object withoutConsumers() throws Exception {
        MessageConsumer listener = listen("NoConsumer", queue());
        Session session = auto(connect());
        sendTransient(session, queue(), "lost");
        send(session, queue(), "stored");
        Message came = listener.receive(PATIENCE);
        return facts("body", body(came), "rest", shownAll(listener, 0).size(), "destination",
                String.valueOf(came.getJMSDestination()), "original",
                String.valueOf(((ActiveMQMessage) came).getOriginalDestination()), "queue", drain(queue()).size());
    }

    public Object withoutSubscribers() throws Exception {
        MessageConsumer listener = listen("NoConsumer", topic());
        sendTransient(auto(connect()), topic(), "lost");
        return drain(listener, 1);
    }

    public Object slowConsumerOfAQueue() throws Exception {
        MessageConsumer listener = listen("SlowConsumer", queue());
        Connection connection = connect("jms.prefetchPolicy.all=2");
        client(connection).createConsumer(queue());
        awaitBroker(connection);
        fill(queue(), 6);
        return shownAll(listener, 0);  // none with ActiveMQ
    }

    public Object slowConsumerOfATopic() throws Exception {
        ActiveMQTopic slow = new ActiveMQTopic(named("").replace("PolicyAdvisories.", "PolicyAdvisories.slow."));
        MessageConsumer listener = listen("SlowConsumer", slow);
        Connection connection = connect("jms.prefetchPolicy.all=2");
        client(connection).createConsumer(slow);
        awaitBroker(connection);
        Session session = auto(connect());
        sendTransient(session, slow, numbered(0, 5));
        boolean before = !silent(listener);
        sendTransient(session, slow, numbered(5, 12));
        return facts("before", before, "after", shownAll(listener, 1));
    }

    public Object discarded() throws Exception {
        MessageConsumer listener = listen("MessageDiscarded", topic());
        Connection connection = connect("jms.prefetchPolicy.all=1");
        client(connection).createConsumer(topic());
        awaitBroker(connection);
        Session session = auto(connect());
        for (int number = 0; number < 5; number++) {
            sendTransient(session, topic(), "m" + number);
        }
        return shownAll(listener, 2);
    }
}
