import java.util.ArrayList;
import java.util.List;
import javax.jms.BytesMessage;
import javax.jms.DeliveryMode;
import javax.jms.InvalidDestinationException;
import javax.jms.JMSException;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.ObjectMessage;
import javax.jms.Session;
import javax.jms.StreamMessage;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;

/**
 * Java clients at both ends of a bridge: producers and requesters at the broker of the address, consumers and repliers
 * at a remote one. The test knows its address, and what the names of the queues begin with.
 */
public final class Bridges extends Area {

    private static final long PAUSE = 50;

    /** A started connection to the other broker. */
    private ActiveMQConnection remote() throws Exception {
        var factory = new ActiveMQConnectionFactory(askText("remote"));
        var connection = keep((ActiveMQConnection) factory.createConnection());
        connection.start();
        return connection;
    }

    private ActiveMQQueue bridged() throws Exception {
        return new ActiveMQQueue(askText("way") + "." + named(""));
    }

    public Object everyHeader() throws Exception {
        ActiveMQQueue queue = bridged();
        Session session = auto(connect());
        TextMessage sent = session.createTextMessage("Grüße, 東京");
        sent.setJMSCorrelationID("correlated");
        sent.setJMSType("kind");
        sent.setJMSReplyTo(new ActiveMQQueue("replies"));
        sent.setBooleanProperty("boolean", true);
        sent.setByteProperty("byte", (byte) 1);
        sent.setShortProperty("short", (short) 2);
        sent.setIntProperty("int", 3);
        sent.setLongProperty("long", 4);
        sent.setFloatProperty("float", 5.5f);
        sent.setDoubleProperty("double", 6.5);
        sent.setStringProperty("string", "ß");
        session.createProducer(queue).send(sent, DeliveryMode.PERSISTENT, 7, 60_000);
        Message message = auto(remote()).createConsumer(queue).receive(PATIENCE);
        return facts("body", body(message), "correlation id", message.getJMSCorrelationID(),
                "type", message.getJMSType(), "reply to", message.getJMSReplyTo().toString(),
                "priority", message.getJMSPriority(), "delivery mode", message.getJMSDeliveryMode(),
                "same id", message.getJMSMessageID().equals(sent.getJMSMessageID()),
                "same times", message.getJMSTimestamp() == sent.getJMSTimestamp()
                        && message.getJMSExpiration() == sent.getJMSExpiration(),
                "same destination", message.getJMSDestination().equals(queue),
                "redelivered", message.getJMSRedelivered(), "properties", properties(message));
    }

    public Object everyKind() throws Exception {
        ActiveMQQueue queue = bridged();
        Session session = auto(connect());
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeLong(1);
        MapMessage map = session.createMapMessage();
        map.setDouble("number", 1.5);
        StreamMessage stream = session.createStreamMessage();
        stream.writeString("first");
        stream.writeInt(2);
        MessageProducer producer = session.createProducer(queue);
        for (Message each : List.of(bytes, map, stream, session.createObjectMessage("object"), session.createMessage())) {
            producer.send(each);
        }
        MessageConsumer consumer = auto(remote()).createConsumer(queue);
        List<Object> seen = new ArrayList<>();
        for (int number = 0; number < 5; number++) {
            seen.add(content(consumer.receive(PATIENCE)));
        }
        return seen;
    }

    private static Object content(Message message) throws JMSException {
        if (message instanceof BytesMessage bytes) {
            return bytes.readLong();
        } else if (message instanceof MapMessage map) {
            return map.getDouble("number");
        } else if (message instanceof StreamMessage stream) {
            return List.of(stream.readString(), stream.readInt());
        } else if (message instanceof ObjectMessage object) {
            return object.getObject();
        }
        return message == null ? "nothing" : "no body";
    }

    public Object transactions() throws Exception {
        ActiveMQQueue queue = bridged();
        Session session = transacted(connect());
        send(session, queue, "rolled back");
        session.rollback();
        send(session, queue, numbered(0, 5));
        session.commit();
        Session reading = transacted(remote());
        MessageConsumer consumer = reading.createConsumer(queue);
        List<Object> first = take(consumer, 5);
        reading.rollback();
        List<Object> again = takeMarked(consumer, 5);
        reading.commit();
        return facts("first", first, "again", again, "silent", silent(consumer));
    }

    public Object requestAndReply() throws Exception {
        ActiveMQQueue queue = bridged();
        Session asking = auto(connect());
        var replies = asking.createTemporaryQueue();
        MessageConsumer answers = asking.createConsumer(replies);
        Message question = asking.createTextMessage("question");
        question.setJMSReplyTo(replies);
        asking.createProducer(queue).send(question);
        Session replying = auto(remote());
        Message asked = replying.createConsumer(queue).receive(PATIENCE);
        Message answer = replying.createTextMessage("re: " + body(asked));
        answer.setJMSCorrelationID(asked.getJMSMessageID());
        reply(replying, asked, answer);
        Message answered = answers.receive(PATIENCE);
        return facts("body", body(answered),
                "correlated", question.getJMSMessageID().equals(answered.getJMSCorrelationID()));
    }

    /** Reply to a request, which may overtake the advisory of its temporary queue. */
    private static void reply(Session session, Message asked, Message answer) throws Exception {
        MessageProducer producer = session.createProducer(null);
        for (long waited = 0; ; waited += PAUSE) {
            try {
                producer.send(asked.getJMSReplyTo(), answer);
                return;
            } catch (InvalidDestinationException unknown) {
                if (waited > PATIENCE) {
                    throw unknown;
                }
                Thread.sleep(PAUSE);
            }
        }
    }
}
