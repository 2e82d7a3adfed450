import java.util.ArrayList;
import java.util.List;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.command.ActiveMQTopic;

/** Topics, durable subscriptions and noLocal. */
public final class Topics extends Area {

    /** A connection for the subscriber of a check; each check has its own client id. */
    private ActiveMQConnection subscriber() throws Exception {
        return identified(named("client"));
    }

    /** Receive what a durable subscription kept, on a connection of its own. */
    private List<Object> backlog(String name, String selector, int least) throws Exception {
        Connection connection = subscriber();
        List<Object> kept = drain(auto(connection).createDurableSubscriber(topic(), name, selector, false), least);
        connection.close();
        return kept;
    }

    private void subscribe(String name, String selector) throws Exception {
        Connection connection = subscriber();
        auto(connection).createDurableSubscriber(topic(), name, selector, false);
        connection.close();
    }

    private static void sendOdds(Session session, ActiveMQTopic topic, int count) throws Exception {
        MessageProducer producer = session.createProducer(topic);
        for (int number = 0; number < count; number++) {
            TextMessage message = session.createTextMessage("m" + number);
            message.setBooleanProperty("odd", number % 2 == 1);
            producer.send(message);
        }
    }

    // ------------------------------------------------------------ plain

    public Object everySubscriberGetsEveryMessage() throws Exception {
        List<MessageConsumer> consumers = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            consumers.add(auto(connect()).createConsumer(topic()));
        }
        fill(topic(), 4);
        List<Object> received = new ArrayList<>();
        for (MessageConsumer consumer : consumers) {
            received.add(take(consumer, 4));
        }
        return received;
    }

    public Object messagesBeforeTheFirstConsumer() throws Exception {
        fill(topic(), 2);
        MessageConsumer late = auto(connect()).createConsumer(topic());
        fill(topic(), 1);
        return drain(late, 1);
    }

    public Object smallWindow() throws Exception {
        MessageConsumer consumer =
                auto(connect("jms.prefetchPolicy.topicPrefetch=2")).createConsumer(topic());
        fill(topic(), 30);
        return take(consumer, 30).equals(List.of((Object[]) numbered(0, 30)));
    }

    public Object noLocal() throws Exception {
        Connection own = connect();
        Session session = auto(own);
        MessageConsumer others = session.createConsumer(topic(), null, true);
        MessageConsumer all = session.createConsumer(topic());
        send(session, topic(), "own");
        send(auto(connect()), topic(), "other");
        return facts("no local", drain(others, 1), "all", take(all, 2));
    }

    public Object rollbackOnATopicRedelivers() throws Exception {
        Session session = transacted(connect(AT_ONCE));
        MessageConsumer consumer = session.createConsumer(topic());
        fill(topic(), 2);
        List<Object> first = takeMarked(consumer, 2);
        session.rollback();
        List<Object> again = takeMarked(consumer, 2);
        session.commit();
        return facts("first", first, "again", again);
    }

    // ------------------------------------------------------------ durable

    public Object backlogWaits() throws Exception {
        subscribe("s", null);
        fill(topic(), 3);
        List<Object> first = backlog("s", null, 3);
        fill(topic(), 1);
        return facts("first", first, "second", backlog("s", null, 1));
    }

    public Object backlogThenLive() throws Exception {
        subscribe("s", null);
        fill(topic(), 2);
        MessageConsumer consumer = auto(subscriber()).createDurableSubscriber(topic(), "s");
        List<Object> kept = take(consumer, 2);
        fill(topic(), 2);
        return facts("kept", kept, "live", take(consumer, 2));
    }

    public Object unacknowledgedStays() throws Exception {
        subscribe("s", null);
        fill(topic(), 3);
        Connection connection = subscriber();
        Session session = client(connection);
        MessageConsumer consumer = session.createDurableSubscriber(topic(), "s");
        consumer.receive(PATIENCE).acknowledge();
        consumer.receive(PATIENCE);
        connection.close();
        return takeMarked(auto(subscriber()).createDurableSubscriber(topic(), "s"), 2);
    }

    public Object subscriptionsAreSeparate() throws Exception {
        subscribe("a", null);
        subscribe("b", null);
        fill(topic(), 2);
        return facts("a", backlog("a", null, 2), "b", backlog("b", null, 2));
    }

    public Object selectorOfADurableSubscription() throws Exception {
        subscribe("s", "odd = TRUE");
        sendOdds(auto(connect()), topic(), 5);
        return backlog("s", "odd = TRUE", 2);
    }

    public Object changedSelectorStartsAgain() throws Exception {
        subscribe("s", "odd = TRUE");
        sendOdds(auto(connect()), topic(), 4);
        List<Object> kept = backlog("s", "odd = FALSE", 0);
        sendOdds(auto(connect()), topic(), 4);
        return facts("backlog dropped", kept, "from now", backlog("s", "odd = FALSE", 2));
    }

    public Object changedTopicStartsAgain() throws Exception {
        subscribe("s", null);
        fill(topic(), 2);
        Connection connection = subscriber();
        MessageConsumer consumer = auto(connection).createDurableSubscriber(topic("other"), "s");
        fill(topic(), 1);
        fill(topic("other"), 1);
        return drain(consumer, 1);
    }

    public Object nonPersistentMessagesWaitToo() throws Exception {
        subscribe("s", null);
        Connection connection = connect();
        sendTransient(auto(connection), topic(), "n0", "n1");
        awaitBroker(connection);
        return backlog("s", null, 2);
    }

    public Object unsubscribe() throws Exception {
        subscribe("s", null);
        fill(topic(), 2);
        Connection connection = subscriber();
        auto(connection).unsubscribe("s");
        String twice = thrown(act(() -> auto(connection).unsubscribe("s")));
        connection.close();
        return facts("twice", twice, "made again", backlog("s", null, 0));
    }

    public Object unsubscribeWhileActive() throws Exception {
        Session session = auto(subscriber());
        MessageConsumer consumer = session.createDurableSubscriber(topic(), "s");
        String active = thrown(act(() -> session.unsubscribe("s")));
        fill(topic(), 1);
        List<Object> still = take(consumer, 1);
        consumer.close();
        return facts("active", active, "still", still, "closed", thrown(act(() -> session.unsubscribe("s"))));
    }

    public Object inUse() throws Exception {
        Session session = auto(subscriber());
        MessageConsumer first = session.createDurableSubscriber(topic(), "s");
        String second = thrown(() -> session.createDurableSubscriber(topic(), "s"));
        fill(topic(), 1);
        return facts("second", second, "first", take(first, 1));
    }

    public Object sameNameOfOtherClients() throws Exception {
        subscribe("s", null);
        Connection other = identified(named("another"));
        auto(other).createDurableSubscriber(topic(), "s").close();
        fill(topic(), 1);
        return facts("one", backlog("s", null, 1),
                "other", drain(auto(other).createDurableSubscriber(topic(), "s"), 1));
    }

    public Object retroactiveSubscription() throws Exception {
        subscribe("s", null);
        sendOdds(auto(connect()), topic(), 4);
        ActiveMQTopic past = new ActiveMQTopic(topic().getPhysicalName() + "?consumer.retroactive=true");
        Connection other = identified(named("another"));
        MessageConsumer late = auto(other).createDurableSubscriber(past, "late");
        List<Object> stored = drain(late, 4);
        fill(topic(), 1);
        List<Object> live = take(late, 1);
        List<Object> odd = drain(auto(other).createDurableSubscriber(past, "odd", "odd = TRUE", false), 2);
        late.close();
        List<Object> again = drain(auto(other).createDurableSubscriber(past, "late"), 0);
        List<Object> kept = backlog("s", null, 5);
        return facts("stored", stored, "live", live, "odd", odd, "again", again, "kept", kept);
    }

    public Object wildcardSubscription() throws Exception {
        ActiveMQTopic all = topic(">");
        Connection connection = subscriber();
        auto(connection).createDurableSubscriber(all, "s");
        connection.close();
        send(auto(connect()), topic("a"), "a0", "a1");
        send(auto(connect()), topic("b.c"), "c0");
        MessageConsumer consumer = auto(subscriber()).createDurableSubscriber(all, "s");
        return take(consumer, 3).stream().map(Object::toString).sorted().toList();
    }

    public Object noLocalDurable() throws Exception {
        Connection own = subscriber();
        Session session = auto(own);
        MessageConsumer consumer = session.createDurableSubscriber(topic(), "s", null, true);
        send(session, topic(), "own");
        send(auto(connect()), topic(), "other");
        return drain(consumer, 1);
    }

    public Object transactedDurable() throws Exception {
        subscribe("s", null);
        fill(topic(), 3);
        Connection connection = unstarted(AT_ONCE);
        connection.setClientID(named("client"));
        connection.start();
        Session session = transacted(connection);
        MessageConsumer consumer = session.createDurableSubscriber(topic(), "s");
        List<Object> first = take(consumer, 2);
        session.rollback();
        List<Object> again = takeMarked(consumer, 2);
        session.commit();
        connection.close();
        return facts("first", first, "again", again, "left", backlog("s", null, 1));
    }

    /** A subscription made while a backlog of others exists starts empty. */
    public Object newSubscriptionSeesNothingOld() throws Exception {
        subscribe("old", null);
        fill(topic(), 2);
        subscribe("new", null);
        fill(topic(), 1);
        return facts("old", backlog("old", null, 3), "new", backlog("new", null, 1));
    }

    public Object largeBacklog() throws Exception {
        subscribe("s", null);
        Session session = transacted(connect());
        MessageProducer producer = session.createProducer(topic());
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        for (String body : numbered(0, 500)) {
            producer.send(session.createTextMessage(body));
        }
        session.commit();
        MessageConsumer consumer = auto(subscriber()).createDurableSubscriber(topic(), "s");
        return take(consumer, 500).equals(List.of((Object[]) numbered(0, 500)));
    }
}
