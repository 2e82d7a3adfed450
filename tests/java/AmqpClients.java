import java.util.ArrayList;
import java.util.List;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TemporaryQueue;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** JMS clients beside AMQP clients, which the test is. */
public final class AmqpClients extends Area {

    private static final int REQUESTS = 5;

    /** A JMS service that answers AMQP clients: the correlation id of an answer is that of the request, or its id. */
    public Object service() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(new ActiveMQQueue("amqp.service"));
        ask("request");
        List<Object> ids = new ArrayList<>();
        boolean temporary = true;
        for (int count = 0; count < REQUESTS; count++) {
            TextMessage request = (TextMessage) consumer.receive(PATIENCE);
            String id = request.getJMSCorrelationID() == null
                    ? request.getJMSMessageID() : request.getJMSCorrelationID();
            ids.add(id);
            temporary &= request.getJMSReplyTo() instanceof TemporaryQueue;
            TextMessage answer = session.createTextMessage(request.getText().toUpperCase());
            answer.setJMSCorrelationID(id);
            session.createProducer(request.getJMSReplyTo()).send(answer);
        }
        return facts("ids", ids, "temporary queue", temporary, "answers", ask("answers"));
    }

    /** The temporary queue of an AMQP link is removed with the link, and that of a connection with the connection. */
    public Object removal() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(new ActiveMQQueue("amqp.removal"));
        List<Object> seen = new ArrayList<>();
        for (String end : List.of("link", "connection")) {
            ask("request, then end the " + end);
            Message request = consumer.receive(PATIENCE);
            seen.add(thrown(() -> {
                session.createProducer(request.getJMSReplyTo()).send(session.createTextMessage("too late"));
                return null;
            }));
        }
        return seen;
    }

    /** A JMS client whose requests an AMQP service answers. */
    public Object client() throws Exception {
        Session session = auto(connect());
        TemporaryQueue replies = session.createTemporaryQueue();
        MessageConsumer answers = session.createConsumer(replies);
        List<Object> seen = new ArrayList<>();
        for (String correlationId : new String[] {null, "order 17"}) {
            Message request = session.createTextMessage("ping");
            request.setJMSReplyTo(replies);
            request.setJMSCorrelationID(correlationId);
            session.createProducer(new ActiveMQQueue("amqp.client")).send(request);
            String expected = correlationId == null ? request.getJMSMessageID() : correlationId;
            Object asked = ask("answer");
            TextMessage answer = (TextMessage) answers.receive(PATIENCE);
            seen.add(facts(
                    "request", asked,
                    "body", answer.getText(),
                    "correlated", expected.equals(answer.getJMSCorrelationID()),
                    "destination", answer.getJMSDestination().equals(replies)));
        }
        return seen;
    }

    /** A durable subscription of a JMS client is one of an AMQP client, with its backlog and its selector. */
    public Object durableResumedInAmqp() throws Exception {
        ActiveMQTopic topic = new ActiveMQTopic("amqp.durable");
        ActiveMQConnection connection = identified("amqp client 1");
        auto(connection).createDurableSubscriber(topic, "sub", "colour = 'red'", false);
        connection.close();
        sendColours(topic);
        return ask("resume");
    }

    /** A durable subscription of an AMQP client is one of a JMS client, which may end it. */
    public Object durableResumedInJava() throws Exception {
        ActiveMQTopic topic = new ActiveMQTopic("amqp.durable");
        ask("subscribe");
        sendColours(topic);
        ActiveMQConnection connection = identified("amqp client 2");
        Session session = auto(connection);
        MessageConsumer subscriber = session.createDurableSubscriber(topic, "sub", "colour = 'red'", false);
        List<Object> backlog = drain(subscriber, 2);
        subscriber.close();
        session.unsubscribe("sub");
        connection.close();
        return facts("backlog", backlog, "after its end", ask("resume another"));
    }

    private void sendColours(ActiveMQTopic topic) throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(topic);
        for (String colour : List.of("red", "blue", "red")) {
            TextMessage message = session.createTextMessage(colour);
            message.setStringProperty("colour", colour);
            producer.send(message);
        }
    }
}
