import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.Destination;
import javax.jms.JMSException;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TemporaryQueue;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** Requests for statistics by messages: destinations, the broker, subscriptions. */
public final class Statistics extends Area {

    private static final String PREFIX = "ActiveMQ.Statistics.";
    private static final String OF_DESTINATION = PREFIX + "Destination";
    private static final String END = OF_DESTINATION + ".List.End.With.Null";
    private static final String FIRST = OF_DESTINATION + ".Include.First.Message.Timestamp";
    private static final List<String> COUNTS = List.of(
            "size", "enqueueCount", "dequeueCount", "dispatchCount", "inflightCount", "expiredCount", "consumerCount",
            "producerCount");

    /** The answers to a request, which may have properties; with all patience for a number of them that must come. */
    private List<Message> ask(int least, Destination destination, String... properties) throws JMSException {
        Session session = auto(connect());
        TemporaryQueue answers = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(answers);
        Message request = session.createMessage();
        request.setJMSReplyTo(answers);
        request.setJMSCorrelationID("mine");
        for (String property : properties) {
            request.setBooleanProperty(property, true);
        }
        session.createProducer(destination).send(request);
        return all(consumer, least);
    }

    private MapMessage askOne(Destination destination, String... properties) throws JMSException {
        List<Message> came = ask(1, destination, properties);
        if (came.size() != 1) {
            throw new AssertionError(came.size() + " answers");
        }
        return (MapMessage) came.get(0);
    }

    private static ActiveMQQueue about(Destination destination) throws JMSException {
        return new ActiveMQQueue(OF_DESTINATION + "." + ((ActiveMQQueue) destination).getQueueName());
    }

    private static ActiveMQTopic aboutTopic(Destination destination) throws JMSException {
        return new ActiveMQTopic(OF_DESTINATION + "." + ((ActiveMQTopic) destination).getTopicName());
    }

    private static Map<String, Object> chosen(MapMessage answer, List<String> names) throws JMSException {
        Map<String, Object> found = new TreeMap<>();
        for (String name : names) {
            found.put(name, answer.getObject(name));
        }
        return found;
    }

    private static Map<String, Object> types(MapMessage answer) throws JMSException {
        Map<String, Object> found = new TreeMap<>();
        for (Enumeration<?> names = answer.getMapNames(); names.hasMoreElements(); ) {
            String name = (String) names.nextElement();
            Object value = answer.getObject(name);
            found.put(name, value == null ? "null" : value.getClass().getSimpleName());
        }
        return found;
    }

    /** Consumers with a window of three, which acknowledge two of five messages. */
    private void work(Destination destination, MessageConsumer... consumers) throws Exception {
        Connection connection = connect();
        send(auto(connection), destination, numbered(0, 5));
        awaitBroker(connection);
        for (MessageConsumer consumer : consumers) {
            consumer.receive(PATIENCE);
            consumer.receive(PATIENCE).acknowledge();
        }
    }

    public Object countsOfAQueue() throws Exception {
        Connection connection = connect("jms.prefetchPolicy.all=3");
        work(queue(), client(connection).createConsumer(queue()));
        awaitBroker(connection);
        MessageProducer named = auto(connection).createProducer(queue());
        awaitBroker(connection);
        Map<String, Object> counts = chosen(askOne(about(queue())), COUNTS);
        named.close();
        return counts;
    }

    public Object countsAfterTheConsumerHasLeft() throws Exception {
        Connection connection = connect("jms.prefetchPolicy.all=3");
        work(queue(), client(connection).createConsumer(queue()));
        connection.close();
        return chosen(askOne(about(queue())), COUNTS);
    }

    public Object countsOfATransaction() throws Exception {
        Session session = transacted(connect());
        send(session, queue(), "a", "b");
        Object before = ask(1, about(queue())).size();
        session.commit();
        Object after = chosen(askOne(about(queue())), COUNTS);
        session.createConsumer(queue()).receive(PATIENCE);
        Object received = chosen(askOne(about(queue())), COUNTS);
        session.commit();
        return facts("before", before, "after", after, "received", received,
                "committed", chosen(askOne(about(queue())), COUNTS));
    }

    public Object countsOfExpiredMessages() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        producer.setTimeToLive(50);
        producer.send(session.createTextMessage("late"));
        producer.setTimeToLive(0);
        producer.send(session.createTextMessage("good"));
        producer.close();
        Thread.sleep(100);
        Object came = body(session.createConsumer(queue()).receive(PATIENCE));
        awaitBroker(connect());
        return facts("came", came, "counts", chosen(askOne(about(queue())), COUNTS));
    }

    public Object countsOfATopic() throws Exception {
        Connection connection = identified(named("client"));
        MessageConsumer plain = client(connection).createConsumer(topic());
        MessageConsumer durable = client(connection).createDurableSubscriber(topic(), "s");
        work(topic(), plain, durable);
        awaitBroker(connection);
        return chosen(askOne(aboutTopic(topic())), COUNTS);
    }

    public Object countsOfTopicsOfAWildcard() throws Exception {
        Connection connection = connect();
        Session session = client(connection);
        MessageConsumer consumer = session.createConsumer(topic("*"));
        send(auto(connection), topic("a"), "1", "2");
        send(auto(connection), topic("b"), "3");
        take(consumer, 2);
        consumer.receive(PATIENCE).acknowledge();
        awaitBroker(connection);
        return facts("a", chosen(askOne(aboutTopic(topic("a"))), COUNTS), "b",
                chosen(askOne(aboutTopic(topic("b"))), COUNTS));
    }

    public Object typesOfAQueue() throws Exception {
        fill(queue(), 1);
        return types(askOne(about(queue())));
    }

    public Object typesOfTheBroker() throws Exception {
        return types(askOne(new ActiveMQQueue(PREFIX + "Broker")));
    }

    public Object headers() throws Exception {
        fill(queue(), 1);
        MapMessage answer = askOne(about(queue()));
        return facts("type", answer.getJMSType(), "delivery mode", answer.getJMSDeliveryMode(), "priority",
                answer.getJMSPriority(), "correlation id", answer.getJMSCorrelationID(), "expiration",
                answer.getJMSExpiration(), "name", answer.getString("destinationName"),
                "message size", answer.getLong("averageMessageSize") >= 1024);
    }

    public Object wildcards() throws Exception {
        fill(queue("a"), 1);
        fill(queue("b"), 1);
        List<Object> names = new ArrayList<>();
        for (Message answer : ask(2, about(queue("*")))) {
            names.add(((MapMessage) answer).getString("destinationName"));
        }
        names.sort(null);
        return facts("names", names, "beginning", ask(0, about(queue("x>"))).size(), "unknown",
                ask(0, about(queue("none"))).size());
    }

    public Object withoutADot() throws Exception {
        fill(queue(), 1);
        return askOne(new ActiveMQQueue(OF_DESTINATION + named(""))).getString("destinationName");
    }

    public Object inAnotherCase() throws Exception {
        fill(queue(), 1);
        return ask(0, new ActiveMQQueue((OF_DESTINATION + ".").toLowerCase() + named(""))).size();
    }

    public Object endOfTheList() throws Exception {
        fill(queue(), 1);
        List<Message> byProperty = ask(2, about(queue()), END);
        List<Message> byName = ask(2, new ActiveMQQueue(OF_DESTINATION + "." + named("") + END));
        return facts("by property", byProperty.size(), "last", types((MapMessage) byProperty.get(1)), "by name",
                byName.size(), "of nothing", ask(1, about(queue("none")), END).size());
    }

    /** ActiveMQ tells when it got the message, pybroker when the client says that it has sent it. */
    public Object timeOfTheFirstMessage() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        long before = System.currentTimeMillis();
        producer.send(session.createMessage());
        long after = System.currentTimeMillis();
        send(session, queue(), "later");
        long time = askOne(about(queue()), FIRST).getLong("firstMessageTimestamp");
        drain(queue());
        return facts("when it came", before <= time && time <= after, "of none",
                askOne(about(queue()), FIRST).itemExists("firstMessageTimestamp"), "not asked for",
                askOne(about(queue())).itemExists("firstMessageTimestamp"));
    }

    public Object ofASubscription() throws Exception {
        Connection connection = connect("jms.prefetchPolicy.all=3");
        work(queue(), client(connection).createConsumer(queue(), "JMSPriority > 2"));
        awaitBroker(connection);
        for (Message answer : ask(1, new ActiveMQQueue(PREFIX + "Subscription"))) {
            MapMessage map = (MapMessage) answer;
            if (named("").equals(map.getString("destinationName"))) {
                return facts("types", types(map), "correlation id", answer.getJMSCorrelationID(), "values",
                        chosen(map, List.of(
                                "selector", "enqueueCounter", "dequeueCounter", "dispatchedCounter",
                                "dispatchedQueueSize", "prefetchSize", "exclusive", "retroactive", "slowConsumer")));
            }
        }
        return "nothing";
    }

    public Object ofADurableSubscription() throws Exception {
        Connection connection = identified(named("client"));
        auto(connection).createDurableSubscriber(topic(), "s");
        awaitBroker(connection);
        for (Message answer : ask(0, new ActiveMQQueue(PREFIX + "Subscription"))) {
            if (named("").equals(((MapMessage) answer).getString("destinationName"))) {
                return "found";
            }
        }
        return "nothing";
    }

    public Object inATransaction() throws Exception {
        Connection connection = connect();
        Session session = transacted(connection);
        TemporaryQueue answers = session.createTemporaryQueue();
        MessageConsumer consumer = auto(connection).createConsumer(answers);
        Message request = session.createMessage();
        request.setJMSReplyTo(answers);
        session.createProducer(new ActiveMQQueue(PREFIX + "Broker")).send(request);
        boolean atOnce = consumer.receive(PATIENCE) != null;
        session.rollback();
        return facts("at once", atOnce, "more", !silent(consumer));
    }

    public Object withoutReplyTo() throws Exception {
        Session session = auto(connect());
        ActiveMQQueue ordinary = new ActiveMQQueue(PREFIX + "Broker");
        MessageProducer producer = session.createProducer(ordinary);
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        producer.send(session.createTextMessage("ordinary"));
        return drain(ordinary);
    }
}
