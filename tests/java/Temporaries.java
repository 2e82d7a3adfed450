import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.QueueConnection;
import javax.jms.QueueRequestor;
import javax.jms.QueueSession;
import javax.jms.Session;
import javax.jms.TemporaryQueue;
import javax.jms.TemporaryTopic;
import javax.jms.TextMessage;
import javax.jms.TopicConnection;
import javax.jms.TopicRequestor;
import javax.jms.TopicSession;

/** Temporary destinations, and requests with replies across connections. */
public final class Temporaries extends Area {

    /** Answers every request with "re " and its text, on a connection of its own, until the check ends. */
    private void answer(javax.jms.Destination requests, String options) throws Exception {
        Session session = auto(connect(options));
        MessageProducer producer = session.createProducer(null);
        session.createConsumer(requests).setMessageListener(request -> thrown(act(() -> {
            TextMessage reply = session.createTextMessage("re " + ((TextMessage) request).getText());
            reply.setJMSCorrelationID(request.getJMSMessageID());
            producer.send(request.getJMSReplyTo(), reply);
        })));
    }

    private Object ask(Session session, javax.jms.Destination requests, javax.jms.Destination replies, String text)
            throws Exception {
        MessageConsumer consumer = session.createConsumer(replies);
        TextMessage request = session.createTextMessage(text);
        request.setJMSReplyTo(replies);
        session.createProducer(requests).send(request);
        Message reply = consumer.receive(PATIENCE);
        consumer.close();
        return reply == null ? "nothing"
                : body(reply) + ", correlated " + request.getJMSMessageID().equals(reply.getJMSCorrelationID());
    }

    /** Try until an action throws what is awaited; the last outcome. */
    private static String eventually(String awaited, Callable<?> action) throws Exception {
        String last = "";
        for (long end = System.currentTimeMillis() + PATIENCE; System.currentTimeMillis() < end; Thread.sleep(2)) {
            last = thrown(action);
            if (last.equals(awaited)) {
                break;
            }
        }
        return last;
    }

    public Object requestAndReply() throws Exception {
        answer(queue(), "");
        Session session = auto(connect());
        TemporaryQueue replies = session.createTemporaryQueue();
        return List.of(ask(session, queue(), replies, "a"), ask(session, queue(), replies, "b"));
    }

    /** The replier connects after the temporary queue was made, and must know it all the same. */
    public Object replierConnectsLater() throws Exception {
        Session session = auto(connect());
        TemporaryQueue replies = session.createTemporaryQueue();
        answer(queue(), "");
        return ask(session, queue(), replies, "late");
    }

    public Object manyRepliers() throws Exception {
        for (int number = 0; number < 3; number++) {
            answer(queue(), "");
        }
        Session session = auto(connect());
        List<Object> replies = new ArrayList<>();
        for (int number = 0; number < 9; number++) {
            replies.add(ask(session, queue(), session.createTemporaryQueue(), "r" + number));
        }
        return replies;
    }

    public Object replierWithoutAdvisories() throws Exception {
        answer(queue(), "jms.watchTopicAdvisories=false");
        Session session = auto(connect("jms.watchTopicAdvisories=false"));
        return ask(session, queue(), session.createTemporaryQueue(), "quiet");
    }

    public Object temporaryTopic() throws Exception {
        answer(topic(), "");
        Session session = auto(connect());
        return ask(session, topic(), session.createTemporaryTopic(), "t");
    }

    public Object queueRequestor() throws Exception {
        answer(queue(), "");
        QueueConnection connection = keep(factory("").createQueueConnection());
        connection.start();
        QueueSession session = connection.createQueueSession(false, Session.AUTO_ACKNOWLEDGE);
        QueueRequestor asking = new QueueRequestor(session, queue());
        List<Object> replies = new ArrayList<>();
        for (String text : List.of("a", "b", "c")) {
            replies.add(body(asking.request(session.createTextMessage(text))));
        }
        asking.close();
        return replies;
    }

    public Object topicRequestor() throws Exception {
        answer(topic(), "");
        TopicConnection connection = keep(factory("").createTopicConnection());
        connection.start();
        TopicSession session = connection.createTopicSession(false, Session.AUTO_ACKNOWLEDGE);
        TopicRequestor asking = new TopicRequestor(session, topic());
        Object reply = body(asking.request(session.createTextMessage("a")));
        asking.close();
        return reply;
    }

    public Object onlyTheOwnerConsumes() throws Exception {
        TemporaryQueue queue = auto(connect()).createTemporaryQueue();
        Session other = auto(connect());
        return thrown(() -> other.createConsumer(queue));
    }

    public Object anybodySends() throws Exception {
        Session owner = auto(connect());
        TemporaryQueue queue = owner.createTemporaryQueue();
        MessageConsumer consumer = owner.createConsumer(queue);
        send(auto(connect()), queue, "from an unknown client");
        return take(consumer, 1);
    }

    public Object messagesWaitForTheirConsumer() throws Exception {
        Session owner = auto(connect());
        TemporaryQueue queue = owner.createTemporaryQueue();
        send(auto(connect()), queue, "m0", "m1");
        return take(owner.createConsumer(queue), 2);
    }

    public Object deleteWithAConsumer() throws Exception {
        Session owner = auto(connect());
        TemporaryQueue queue = owner.createTemporaryQueue();
        MessageConsumer consumer = owner.createConsumer(queue);
        String inUse = thrown(act(queue::delete));
        consumer.close();
        return facts("in use", inUse, "unused", thrown(act(queue::delete)));
    }

    /** The other client knows it from the advisory, and does not even ask the broker. */
    public Object deletedIsUnknownToOthers() throws Exception {
        TemporaryQueue queue = auto(connect()).createTemporaryQueue();
        Session other = auto(connect());
        MessageProducer producer = other.createProducer(null);
        // Its advisory may still be under way.
        eventually("nothing", act(() -> producer.send(queue, other.createMessage())));
        queue.delete();
        return eventually(
                "javax.jms.InvalidDestinationException", act(() -> producer.send(queue, other.createMessage())));
    }

    public Object deletedIsUnknownToTheBroker() throws Exception {
        Session owner = auto(connect());
        TemporaryQueue queue = owner.createTemporaryQueue();
        queue.delete();
        Session other = auto(connect("jms.watchTopicAdvisories=false"));
        return thrown(act(() -> send(other, queue, "after")));
    }

    public Object diesWithItsConnection() throws Exception {
        Connection connection = connect();
        TemporaryQueue queue = auto(connection).createTemporaryQueue();
        TemporaryTopic topic = auto(connection).createTemporaryTopic();
        connection.close();
        Session other = auto(connect("jms.watchTopicAdvisories=false"));
        return facts(
                "queue", thrown(act(() -> send(other, queue, "after"))),
                "topic", thrown(act(() -> send(other, topic, "after"))));
    }

    public Object diesWithACutConnection() throws Exception {
        var connection = connect();
        TemporaryQueue queue = auto(connection).createTemporaryQueue();
        Session other = auto(connect("jms.watchTopicAdvisories=false"));
        cut(connection);
        return eventually(
                "org.apache.activemq.DestinationDoesNotExistException", act(() -> send(other, queue, "after")));
    }

    public Object transactedRequestAndReply() throws Exception {
        answer(queue(), "");
        Session session = transacted(connect());
        TemporaryQueue replies = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(replies);
        TextMessage request = session.createTextMessage("tx");
        request.setJMSReplyTo(replies);
        session.createProducer(queue()).send(request);
        boolean silent = silent(consumer);
        session.commit();
        List<Object> reply = take(consumer, 1);
        session.commit();
        return facts("silent before the commit", silent, "reply", reply);
    }
}
