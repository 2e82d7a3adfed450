import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.command.ActiveMQQueue;

/** Who gets which message: windows, pulling, listeners, browsers, exclusive consumers, priorities, groups. */
public final class Consumers extends Area {

    private ActiveMQQueue with(String options) {
        return new ActiveMQQueue(named("") + "?" + options);
    }

    // ------------------------------------------------------------ windows

    public Object aWindowHoldsWhatItWasGiven() throws Exception {
        fill(queue(), 5);
        Session first = client(connect("jms.prefetchPolicy.queuePrefetch=3"));
        MessageConsumer holder = first.createConsumer(queue());
        MessageConsumer other = auto(connect()).createConsumer(queue());
        return facts("other", take(other, 2), "holder", take(holder, 3));
    }

    public Object acknowledgingRefillsAWindow() throws Exception {
        fill(queue(), 4);
        MessageConsumer consumer = auto(connect("jms.prefetchPolicy.queuePrefetch=1")).createConsumer(queue());
        return take(consumer, 4);
    }

    public Object clientAcknowledgeBeyondTheWindow() throws Exception {
        fill(queue(), 10);
        Session session = client(connect("jms.prefetchPolicy.queuePrefetch=4"));
        return take(session.createConsumer(queue()), 10);
    }

    public Object windowInTheName() throws Exception {
        fill(queue(), 3);
        Session session = client(connect());
        MessageConsumer holder = session.createConsumer(with("consumer.prefetchSize=1"));
        MessageConsumer other = auto(connect()).createConsumer(queue());
        return facts("other", take(other, 2), "holder", take(holder, 1));
    }

    public Object equalConsumersTakeTurns() throws Exception {
        Session session = auto(connect());
        MessageConsumer first = session.createConsumer(queue());
        MessageConsumer second = session.createConsumer(queue());
        fill(queue(), 6);
        List<List<Object>> shares = new ArrayList<>(List.of(take(first, 3), take(second, 3)));
        shares.sort((a, b) -> a.toString().compareTo(b.toString()));
        return shares;
    }

    public Object closedConsumerGivesBackInOrder() throws Exception {
        fill(queue(), 5);
        Connection connection = connect();
        MessageConsumer consumer = auto(connection).createConsumer(queue());
        List<Object> received = take(consumer, 1);
        consumer.close();
        send(auto(connection), queue(), "young");
        return facts("received", received, "left", takeMarked(auto(connect()).createConsumer(queue()), 5));
    }

    public Object unstartedConnectionReceivesNothing() throws Exception {
        fill(queue(), 2);
        Connection connection = unstarted("");
        MessageConsumer consumer = auto(connection).createConsumer(queue());
        boolean silent = silent(consumer);
        connection.start();
        return facts("silent", silent, "started", take(consumer, 2));
    }

    public Object stoppedConnectionGoesOn() throws Exception {
        fill(queue(), 2);
        Connection connection = connect();
        MessageConsumer consumer = auto(connection).createConsumer(queue());
        List<Object> before = take(consumer, 1);
        connection.stop();
        boolean silent = silent(consumer);
        connection.start();
        return facts("before", before, "silent", silent, "after", take(consumer, 1));
    }

    public Object selectorLetsOthersPass() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        for (int number = 0; number < 6; number++) {
            TextMessage message = session.createTextMessage("m" + number);
            message.setIntProperty("n", number);
            producer.send(message);
        }
        MessageConsumer late = session.createConsumer(queue(), "n >= 4");
        MessageConsumer odd = session.createConsumer(queue(), "n % 2 = 1 AND n < 4");
        return facts("late", take(late, 2), "odd", take(odd, 2), "left", browse(session, queue(), null));
    }

    /** A match far behind messages that no selector accepts still comes. */
    public Object selectorLooksFarAhead() throws Exception {
        Session session = transacted(connect());
        MessageProducer producer = session.createProducer(queue());
        for (int number = 0; number < 300; number++) {
            TextMessage message = session.createTextMessage("m" + number);
            message.setIntProperty("n", number);
            producer.send(message);
        }
        session.commit();
        MessageConsumer consumer = auto(connect()).createConsumer(queue(), "n = 299");
        Message found = next(consumer, 1_000);
        return body(found);
    }

    /** With a backlog, what comes first: the order of sending, or persistent messages? */
    public Object persistentAndOtherMessagesKeepTheirOrder() throws Exception {
        Session session = auto(connect());
        for (int pair = 0; pair < 3; pair++) {
            sendTransient(session, queue(), "n" + pair);
            send(session, queue(), "p" + pair);
        }
        return drain(queue());
    }

    // ------------------------------------------------------------ pulling

    public Object pullWaits() throws Exception {
        MessageConsumer consumer = auto(connect("jms.prefetchPolicy.queuePrefetch=0")).createConsumer(queue());
        Thread sender = new Thread(() -> thrown(act(() -> fill(queue(), 2))));
        sender.start();
        List<Object> received = List.of(body(consumer.receive()), body(consumer.receive(PATIENCE)));
        sender.join();
        return received;
    }

    public Object pullTimesOut() throws Exception {
        MessageConsumer consumer = auto(connect("jms.prefetchPolicy.queuePrefetch=0")).createConsumer(queue());
        List<Object> received = new ArrayList<>();
        received.add(body(consumer.receiveNoWait()));
        received.add(body(consumer.receive(50)));
        fill(queue(), 3);
        received.add(body(consumer.receiveNoWait()));
        received.add(body(consumer.receive(50)));
        received.add(body(consumer.receive(PATIENCE)));
        received.add(body(consumer.receiveNoWait()));
        return received;
    }

    public Object pullTakesOnlyWhatIsAskedFor() throws Exception {
        fill(queue(), 4);
        Connection connection = connect("jms.prefetchPolicy.queuePrefetch=0");
        MessageConsumer first = auto(connection).createConsumer(queue());
        MessageConsumer second = auto(connection).createConsumer(queue());
        List<Object> received = new ArrayList<>();
        received.addAll(take(first, 1));
        received.addAll(take(second, 1));
        received.addAll(take(second, 1));
        received.addAll(take(first, 1));
        return received;
    }

    public Object pullInATransaction() throws Exception {
        fill(queue(), 3);
        Session session = transacted(connect(AT_ONCE + "&jms.prefetchPolicy.queuePrefetch=0"));
        MessageConsumer consumer = session.createConsumer(queue());
        List<Object> received = take(consumer, 2);
        session.commit();
        received.addAll(take(consumer, 1));
        session.rollback();
        received.addAll(takeMarked(consumer, 1));
        session.commit();
        return facts("received", received, "left", drain(queue()));
    }

    // ------------------------------------------------------------ listeners

    public Object listener() throws Exception {
        fill(queue(), 10);
        List<Object> received = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(12);
        auto(connect()).createConsumer(queue()).setMessageListener(message -> {
            thrown(() -> received.add(body(message)));
            all.countDown();
        });
        send(auto(connect()), queue(), "m10", "m11");
        boolean came = all.await(PATIENCE, TimeUnit.MILLISECONDS);
        return facts("all came", came, "received", received);
    }

    public Object listenerThatSends() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue("out"));
        session.createConsumer(queue("in")).setMessageListener(message -> thrown(act(
                () -> producer.send(session.createTextMessage("re " + ((TextMessage) message).getText())))));
        fill(queue("in"), 3);
        return take(auto(connect()).createConsumer(queue("out")), 3);
    }

    // ------------------------------------------------------------ browsers

    public Object browserShowsAndLeaves() throws Exception {
        fill(queue(), 5);
        Session session = auto(connect());
        return facts(
                "first", browse(session, queue(), null),
                "again", browse(session, queue(), null),
                "left", drain(queue()));
    }

    public Object browserOfAnEmptyQueue() throws Exception {
        return browse(auto(connect()), queue(), null);
    }

    public Object browserWithASelector() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        for (int number = 0; number < 6; number++) {
            TextMessage message = session.createTextMessage("m" + number);
            message.setIntProperty("n", number);
            producer.send(message);
        }
        return browse(session, queue(), "n > 1 AND n <> 4");
    }

    public Object browserShowsWhatConsumersHold() throws Exception {
        fill(queue(), 4);
        Session session = client(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        List<Object> held = take(consumer, 2);
        return facts("held", held, "browsed", browse(auto(connect()), queue(), null));
    }

    public Object browserWithASmallWindow() throws Exception {
        fill(queue(), 20);
        return browse(auto(connect("jms.prefetchPolicy.queueBrowserPrefetch=3")), queue(), null).size();
    }

    public Object browserOfMoreThanAPage() throws Exception {
        Session session = transacted(connect());
        send(session, queue(), numbered(0, 700));
        session.commit();
        return browse(auto(connect()), queue(), null).size();
    }

    // ------------------------------------------------------------ who is served

    public Object higherPriorityIsServedFirst() throws Exception {
        Session session = client(connect());
        MessageConsumer low = session.createConsumer(queue());
        MessageConsumer high = session.createConsumer(with("consumer.priority=5&consumer.prefetchSize=2"));
        fill(queue(), 4);
        return facts("high", take(high, 2), "low", take(low, 2));
    }

    public Object exclusiveConsumer() throws Exception {
        Session session = auto(connect());
        MessageConsumer plain = session.createConsumer(queue());
        MessageConsumer first = session.createConsumer(with("consumer.exclusive=true"));
        MessageConsumer second = session.createConsumer(with("consumer.exclusive=true"));
        fill(queue(), 3);
        List<Object> one = take(first, 3);
        boolean silent = silent(plain) && silent(second);
        first.close();
        fill(queue(), 3);
        List<Object> two = take(second, 3);
        second.close();
        fill(queue(), 1);
        return facts("first", one, "others silent", silent, "second", two, "plain", take(plain, 1));
    }

    public Object exclusiveWithHigherPriorityTakesOver() throws Exception {
        Session session = auto(connect());
        MessageConsumer first = session.createConsumer(with("consumer.exclusive=true"));
        fill(queue(), 1);
        List<Object> before = take(first, 1);
        MessageConsumer second = session.createConsumer(with("consumer.exclusive=true&consumer.priority=9"));
        fill(queue(), 2);
        List<Object> after = take(second, 2);
        boolean silent = silent(first);
        second.close();
        fill(queue(), 1);
        return facts("before", before, "after", after, "first silent", silent, "back", take(first, 1));
    }

    // ------------------------------------------------------------ groups

    private void sendGroups(Session session, Object... groupsSequencesBodies) throws Exception {
        MessageProducer producer = session.createProducer(queue());
        for (int index = 0; index < groupsSequencesBodies.length; index += 3) {
            TextMessage message = session.createTextMessage((String) groupsSequencesBodies[index + 2]);
            message.setStringProperty("JMSXGroupID", (String) groupsSequencesBodies[index]);
            if ((int) groupsSequencesBodies[index + 1] != 0) {
                message.setIntProperty("JMSXGroupSeq", (int) groupsSequencesBodies[index + 1]);
            }
            producer.send(message);
        }
    }

    private static List<Object> takeGrouped(MessageConsumer consumer, int count) throws Exception {
        List<Object> seen = new ArrayList<>();
        while (seen.size() < count && !seen.contains("nothing")) {
            Message message = consumer.receive(PATIENCE);
            boolean first = message != null && message.getBooleanProperty("JMSXGroupFirstForConsumer");
            seen.add(first ? body(message) + " first" : body(message));
        }
        return seen;
    }

    public Object groupStaysWithItsConsumer() throws Exception {
        Session session = auto(connect());
        MessageConsumer one = session.createConsumer(queue());
        MessageConsumer two = session.createConsumer(queue());
        sendGroups(session, "g", 0, "a", "h", 0, "b", "g", 0, "c", "h", 0, "d", "g", 0, "e");
        List<List<Object>> shares = new ArrayList<>(List.of(takeGrouped(one, 1), takeGrouped(two, 1)));
        MessageConsumer g = shares.get(0).get(0).equals("a first") ? one : two;
        MessageConsumer h = g == one ? two : one;
        shares.sort((x, y) -> x.toString().compareTo(y.toString()));
        return facts("firsts", shares, "g", takeGrouped(g, 2), "h", takeGrouped(h, 1));
    }

    public Object groupMovesWhenItsOwnerLeaves() throws Exception {
        Session session = auto(connect());
        MessageConsumer one = session.createConsumer(queue());
        sendGroups(session, "g", 0, "a");
        List<Object> before = takeGrouped(one, 1);
        MessageConsumer two = session.createConsumer(queue());
        sendGroups(session, "g", 0, "b");
        List<Object> still = takeGrouped(one, 1);
        one.close();
        sendGroups(session, "g", 0, "c", "g", 0, "d");
        return facts("before", before, "still", still, "after", takeGrouped(two, 2));
    }

    public Object groupIsClosedByMinusOne() throws Exception {
        Session session = auto(connect());
        MessageConsumer one = session.createConsumer(queue());
        sendGroups(session, "g", 1, "a", "g", 2, "b", "g", -1, "last", "g", 1, "c", "g", 2, "d");
        return takeGrouped(one, 5);
    }

    /** A new consumer gets new groups; those that have an owner stay. */
    public Object newConsumerGetsNewGroups() throws Exception {
        Session session = auto(connect());
        MessageConsumer one = session.createConsumer(queue());
        sendGroups(session, "g", 0, "g1", "h", 0, "h1");
        List<Object> before = takeGrouped(one, 2);
        MessageConsumer two = session.createConsumer(queue());
        sendGroups(session, "k", 0, "k1", "g", 0, "g2", "k", 0, "k2", "h", 0, "h2");
        return facts("before", before, "two", takeGrouped(two, 2), "one", takeGrouped(one, 2));
    }

    /** While the owner is full its group waits, and others pass. */
    public Object fullOwnerHoldsUpOnlyItsGroup() throws Exception {
        MessageConsumer one = client(connect("jms.prefetchPolicy.queuePrefetch=1")).createConsumer(queue());
        Session session = auto(connect());
        sendGroups(session, "g", 0, "g1");
        List<Object> owned = takeGrouped(one, 1);
        MessageConsumer two = session.createConsumer(queue());
        sendGroups(session, "g", 0, "g2", "g", 0, "g3", "g", 0, "g4", "h", 0, "h1");
        return facts("owned", owned, "passed", takeGrouped(two, 1), "in order", takeGrouped(one, 3));
    }
}
