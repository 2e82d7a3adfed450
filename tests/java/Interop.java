import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.jms.BytesMessage;
import javax.jms.DeliveryMode;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TemporaryQueue;
import javax.jms.TextMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** Java on one side, STOMP on the other, which the test speaks: each check asks it to do its part. */
public final class Interop extends Area {

    private static Map<String, Object> described(Message message) throws Exception {
        Map<String, Object> seen = new TreeMap<>();
        if (message == null) {
            return seen;
        }
        seen.put("type", message instanceof TextMessage ? "TextMessage"
                : message instanceof BytesMessage ? "BytesMessage" : message.getClass().getSimpleName());
        seen.put("body", body(message));
        seen.put("properties", properties(message));
        seen.put("correlation id", message.getJMSCorrelationID());
        seen.put("jms type", message.getJMSType());
        seen.put("priority", message.getJMSPriority());
        seen.put("persistent", message.getJMSDeliveryMode() == DeliveryMode.PERSISTENT);
        seen.put("expires", message.getJMSExpiration() != 0);
        seen.put("has a timestamp", message.getJMSTimestamp() != 0);
        seen.put("reply to", String.valueOf(message.getJMSReplyTo()));
        seen.put("destination", message.getJMSDestination().toString());
        return seen;
    }

    // ------------------------------------------------------------ from STOMP

    private Object fromStomp(String request) throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        ask(request);
        return described(consumer.receive(PATIENCE));
    }

    public Object textFromStomp() throws Exception {
        return fromStomp("send text");
    }

    public Object bytesFromStomp() throws Exception {
        return fromStomp("send bytes");
    }

    public Object everyHeaderFromStomp() throws Exception {
        return fromStomp("send headers");
    }

    public Object emptyFromStomp() throws Exception {
        return fromStomp("send empty");
    }

    public Object largeFromStomp() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        ask("send large");
        TextMessage message = (TextMessage) consumer.receive(PATIENCE);
        return message.getText().equals("äx".repeat(1 << 20));
    }

    public Object selectorOnStompHeaders() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(queue(), "color = 'red'");
        ask("send colors");
        return take(consumer, 2);
    }

    public Object transactionFromStomp() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        ask("send in a transaction");
        return drain(consumer, 2);
    }

    // ------------------------------------------------------------ to STOMP

    private Object toStomp(Session session, Message... messages) throws Exception {
        MessageProducer producer = session.createProducer(queue());
        for (Message message : messages) {
            producer.send(message);
        }
        return ask("receive " + messages.length);
    }

    public Object textToStomp() throws Exception {
        Session session = auto(connect());
        return toStomp(session, session.createTextMessage("Grüße, 東京, \uD83D\uDE00"), session.createTextMessage(""));
    }

    public Object bytesToStomp() throws Exception {
        Session session = auto(connect());
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(new byte[] {0, 1, (byte) 0xff, 10});
        return toStomp(session, message);
    }

    public Object otherTypesToStomp() throws Exception {
        Session session = auto(connect());
        MapMessage map = session.createMapMessage();
        map.setInt("n", 1);
        return toStomp(session, map, session.createMessage());
    }

    public Object compressedToStomp() throws Exception {
        Session session = auto(connect("jms.useCompression=true"));
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes("bytes ".repeat(20).getBytes());
        return toStomp(session, session.createTextMessage("text ".repeat(20)), bytes);
    }

    public Object everyHeaderToStomp() throws Exception {
        Session session = auto(connect());
        TextMessage message = session.createTextMessage("x");
        message.setJMSCorrelationID("correlated");
        message.setJMSType("kind");
        message.setJMSReplyTo(queue("replies"));
        message.setBooleanProperty("boolean", true);
        message.setByteProperty("byte", (byte) 1);
        message.setShortProperty("short", (short) 2);
        message.setIntProperty("int", 3);
        message.setLongProperty("long", 4);
        message.setFloatProperty("float", 5.5f);
        message.setDoubleProperty("double", 6.5);
        message.setStringProperty("string", "a:b\\d\ne ß");
        MessageProducer producer = session.createProducer(queue());
        producer.send(message, DeliveryMode.PERSISTENT, 7, 600_000);
        return ask("receive 1");
    }

    public Object topicToStomp() throws Exception {
        ask("subscribe");
        Session session = auto(connect());
        send(session, topic(), "m0", "m1");
        return ask("received 2");
    }

    // ------------------------------------------------------------ requests and replies

    /** A STOMP client sends a request, with a temporary queue of its own; Java replies. */
    public Object stompAsksJava() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(null);
        session.createConsumer(queue()).setMessageListener(request -> thrown(act(() -> {
            TextMessage reply = session.createTextMessage("re " + ((TextMessage) request).getText());
            reply.setJMSCorrelationID(request.getJMSCorrelationID());
            producer.send(request.getJMSReplyTo(), reply);
        })));
        return ask("request");
    }

    /** Java asks, with a temporary queue; STOMP replies. */
    public Object javaAsksStomp() throws Exception {
        Session session = auto(connect());
        TemporaryQueue replies = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(replies);
        TextMessage request = session.createTextMessage("question");
        request.setJMSReplyTo(replies);
        request.setJMSCorrelationID("c1");
        session.createProducer(queue()).send(request);
        ask("reply");
        Message reply = consumer.receive(PATIENCE);
        return facts("reply", body(reply), "correlation id", reply.getJMSCorrelationID());
    }

    /** Both compete for a queue, and share a topic. */
    public Object shared() throws Exception {
        ask("subscribe");
        ActiveMQTopic shared = topic();
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(shared);
        ask("send to the topic");
        List<Object> received = new ArrayList<>(take(consumer, 1));
        return facts("java", received, "stomp", ask("received 1"));
    }

    /** What STOMP refuses with NACK is a dead letter that Java can read. */
    public Object refusedByStomp() throws Exception {
        Session session = auto(connect());
        TextMessage message = session.createTextMessage("refused");
        message.setStringProperty("check", named(""));
        session.createProducer(queue()).send(message);
        ask("nack");
        Message dead = session.createConsumer(new ActiveMQQueue("ActiveMQ.DLQ"), "check = '" + named("") + "'")
                .receive(PATIENCE);
        return facts("body", body(dead), "left", drain(queue()));
    }
}
