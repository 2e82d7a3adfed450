import java.io.Serializable;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.jms.BytesMessage;
import javax.jms.DeliveryMode;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageEOFException;
import javax.jms.MessageProducer;
import javax.jms.ObjectMessage;
import javax.jms.Session;
import javax.jms.StreamMessage;
import javax.jms.TextMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** Messages of AMQP clients as JMS clients get them, and the other way round. The test is the AMQP client. */
public final class AmqpMessages extends Area {

    private static final long RECENT_MILLIS = 120_000;

    private Session session;

    private static Object content(Message message) throws Exception {
        if (message instanceof TextMessage text) {
            return text.getText();
        } else if (message instanceof BytesMessage bytes) {
            byte[] body = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(body);
            return HexFormat.of().formatHex(body);
        } else if (message instanceof MapMessage map) {
            Map<String, Object> entries = new TreeMap<>();
            for (Object name : java.util.Collections.list(map.getMapNames())) {
                entries.put((String) name, typed(map.getObject((String) name)));
            }
            return entries;
        } else if (message instanceof StreamMessage stream) {
            return items(stream);
        } else if (message instanceof ObjectMessage object) {
            return typed(object.getObject());
        }
        return null;
    }

    private static List<Object> items(StreamMessage stream) throws Exception {
        List<Object> items = new ArrayList<>();
        while (true) {
            try {
                items.add(typed(stream.readObject()));
            } catch (MessageEOFException end) {
                return items;
            }
        }
    }

    /** The fields of a message that are not the default. */
    private static Map<String, Object> fields(Message message) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        long now = System.currentTimeMillis();
        put(found, "persistent", message.getJMSDeliveryMode() == DeliveryMode.PERSISTENT, false);
        put(found, "priority", message.getJMSPriority(), 4);
        put(found, "deliveries", message.getIntProperty("JMSXDeliveryCount"), 1);
        put(found, "redelivered", message.getJMSRedelivered(), false);
        put(found, "timestamp", recent(message.getJMSTimestamp() - now, message.getJMSTimestamp()), 0L);
        put(found, "expiration", recent(message.getJMSExpiration() - now, message.getJMSExpiration()), 0L);
        put(found, "correlation id", message.getJMSCorrelationID(), null);
        put(found, "reply to", message.getJMSReplyTo() == null ? null : message.getJMSReplyTo().toString(), null);
        put(found, "type", message.getJMSType(), null);
        put(found, "user", message.getStringProperty("JMSXUserID"), null);
        put(found, "group", message.getStringProperty("JMSXGroupID"), null);
        put(found, "group sequence", message.getObjectProperty("JMSXGroupSeq"), 0);
        return found;
    }

    private static Object recent(long distance, long time) {
        return Math.abs(distance) < RECENT_MILLIS ? "recent" : (Object) time;
    }

    private static void put(Map<String, Object> found, String name, Object value, Object usual) {
        if (value != null && !value.equals(usual)) {
            found.put(name, value);
        }
    }

    private List<Object> received(String queue, int count) throws Exception {
        session = auto(connect());
        MessageConsumer consumer = session.createConsumer(new ActiveMQQueue(queue));
        List<Object> received = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Message message = consumer.receive(PATIENCE);
            if (message == null) {
                received.add("nothing");
                break;
            }
            boolean known = message.getJMSMessageID().contains("request");
            received.add(facts(
                    "class", message.getClass().getSimpleName(),
                    "body", content(message),
                    "id", known ? message.getJMSMessageID() : null,
                    "fields", fields(message),
                    "properties", properties(message)));
        }
        return received;
    }

    /** Messages of an AMQP client, of each kind. */
    public Object received() throws Exception {
        return received("amqp.received", Integer.parseInt(ask("send").text()));
    }

    /** Messages that are kept as they came. */
    public Object receivedNative() throws Exception {
        return received("amqp.native", Integer.parseInt(ask("send native").text()));
    }

    /** Messages of a JMS client, of each kind. */
    public Object sent() throws Exception {
        session = auto(connect());
        MessageProducer producer = session.createProducer(new ActiveMQQueue("amqp.sent"));
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        producer.setDisableMessageTimestamp(true);
        List<Message> messages = new ArrayList<>(bodies());
        messages.add(withProperties());
        for (Message message : messages) {
            producer.send(message);
        }
        Message withFields = session.createMessage();
        withFields.setJMSReplyTo(new ActiveMQTopic("amqp.replies"));
        withFields.setJMSCorrelationID("order 17");
        withFields.setJMSType("order");
        withFields.setStringProperty("JMSXGroupID", "g");
        withFields.setIntProperty("JMSXGroupSeq", 5);
        producer.setDisableMessageTimestamp(false);
        producer.send(withFields, DeliveryMode.PERSISTENT, 7, 60_000);
        return ask("read " + (messages.size() + 1));
    }

    private List<Message> bodies() throws Exception {
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {0, -1});
        MapMessage map = session.createMapMessage();
        map.setInt("int", 5);
        map.setLong("long", 6L);
        map.setByte("byte", (byte) 7);
        map.setShort("short", (short) 8);
        map.setFloat("float", 1.5F);
        map.setDouble("double", 2.5);
        map.setBoolean("boolean", true);
        map.setChar("char", 'x');
        map.setString("string", "Grüße");
        map.setBytes("bytes", new byte[] {0, -1});
        StreamMessage stream = session.createStreamMessage();
        stream.writeInt(5);
        stream.writeString("x");
        stream.writeBytes(new byte[] {0, -1});
        Serializable object = "serialized";
        return List.of(
                session.createTextMessage("Grüße"),
                session.createTextMessage(""),
                session.createTextMessage(),
                bytes,
                map,
                stream,
                session.createObjectMessage(object),
                session.createMessage());
    }

    private Message withProperties() throws Exception {
        Message message = session.createMessage();
        message.setBooleanProperty("boolean", true);
        message.setByteProperty("byte", (byte) -7);
        message.setShortProperty("short", (short) 8);
        message.setIntProperty("int", 5);
        message.setLongProperty("long", 6L);
        message.setFloatProperty("float", 1.5F);
        message.setDoubleProperty("double", 2.5);
        message.setStringProperty("string", "Grüße");
        return message;
    }
}
