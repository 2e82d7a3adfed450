import java.util.ArrayList;
import java.util.Collections;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
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
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Messages of every type, with values of every type: `send URL QUEUE…` sends them, `describe URL QUEUE` prints them. */
public final class EveryType {

    public static void main(String[] arguments) throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[1]);
        factory.setTrustAllPackages(true);
        ActiveMQConnection connection = (ActiveMQConnection) factory.createConnection();
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        for (int at = 2; at < arguments.length; at++) {
            if (arguments[0].equals("send")) {
                send(connection, session, arguments[at]);
            } else {
                describe(session, arguments[at]);
            }
        }
        connection.close();
    }

    private static void send(ActiveMQConnection connection, Session session, String queue) throws Exception {
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        for (Message message : messages(session)) {
            producer.send(message);
        }
        connection.setUseCompression(true);
        producer.send(session.createTextMessage("text ".repeat(50)));
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes("bytes ".repeat(50).getBytes());
        producer.send(bytes);
        connection.setUseCompression(false);
        TextMessage headed = session.createTextMessage("headers");
        headed.setJMSCorrelationID("correlated");
        headed.setJMSType("kind");
        headed.setJMSReplyTo(session.createTopic("replies"));
        headed.setStringProperty("JMSXGroupID", "group");
        headed.setIntProperty("JMSXGroupSeq", 3);
        producer.send(headed, DeliveryMode.NON_PERSISTENT, 7, 3_600_000);
    }

    private static List<Message> messages(Session session) throws Exception {
        List<Message> messages = new ArrayList<>();
        messages.add(session.createMessage());
        messages.add(session.createTextMessage());
        messages.add(session.createTextMessage(""));
        messages.add(session.createTextMessage("Grüße, 東京, \uD83D\uDE00, \u0000, two\nlines\r\n"));
        messages.add(session.createTextMessage("x".repeat(70_000)));
        messages.add(session.createBytesMessage());
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {0, 1, (byte) 0xff, (byte) 0xfe, 10, 13});
        messages.add(bytes);
        messages.add(session.createMapMessage());
        messages.add(session.createStreamMessage());
        messages.add(session.createObjectMessage());
        HashMap<String, Object> object = new HashMap<>();
        object.put("now", new Date(0));
        messages.add(session.createObjectMessage(object));
        MapMessage map = session.createMapMessage();
        StreamMessage stream = session.createStreamMessage();
        for (Object value : values()) {
            map.setObject("m" + Collections.list(map.getMapNames()).size(), value);
            stream.writeObject(value);
        }
        map.setObject("nested", Map.of("list", List.of(1, 2L, "three")));
        messages.add(map);
        messages.add(stream);
        Message properties = session.createMessage();
        int number = 0;
        for (Object value : values()) {
            if (!(value instanceof byte[]) && !(value instanceof Character)) {
                properties.setObjectProperty("p" + number++, value);
            }
        }
        messages.add(properties);
        return messages;
    }

    private static Object[] values() {
        return new Object[] {
            true, false, (byte) -1, (short) 300, 70_000, 5L, 1L << 40, 1.5f, Float.NaN, 0.1f, 0.1, -0.0, 1.0,
            Double.POSITIVE_INFINITY, Double.NaN, "", "a:b\\\"ß", 'c', '\uD800', new byte[] {0, (byte) 0x80}, "y".repeat(9_000)
        };
    }

    // ------------------------------------------------------------ describing

    private static void describe(Session session, String queue) throws Exception {
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        for (Message message = consumer.receive(10_000); message != null; message = consumer.receive(500)) {
            StringBuilder line = new StringBuilder(message.getClass().getSimpleName());
            line.append(" reply=").append(message.getJMSReplyTo()).append(" type=").append(message.getJMSType());
            line.append(" correlation=").append(message.getJMSCorrelationID()).append(" mode=");
            line.append(message.getJMSDeliveryMode()).append(" priority=").append(message.getJMSPriority());
            line.append(" lives=").append(message.getJMSExpiration() == 0 ? 0
                    : message.getJMSExpiration() - message.getJMSTimestamp());
            line.append(" properties={");
            List<String> names = new ArrayList<>();
            for (Object name : Collections.list(message.getPropertyNames())) {
                names.add((String) name);
            }
            Collections.sort(names);
            for (String name : names) {
                line.append(name).append('=').append(shown(message.getObjectProperty(name))).append(", ");
            }
            System.out.println(escaped(line.append("} body=").append(body(message)).toString()));
        }
    }

    private static String body(Message message) throws Exception {
        if (message instanceof TextMessage text) {
            return shown(text.getText());
        }
        if (message instanceof BytesMessage bytes) {
            byte[] all = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(all);
            return shown(all);
        }
        if (message instanceof ObjectMessage object) {
            return shown(object.getObject());
        }
        StringBuilder found = new StringBuilder();
        if (message instanceof MapMessage map) {
            List<String> names = new ArrayList<>();
            for (Object name : Collections.list(map.getMapNames())) {
                names.add((String) name);
            }
            Collections.sort(names);
            for (String name : names) {
                found.append(name).append('=').append(shown(map.getObject(name))).append(", ");
            }
        }
        if (message instanceof StreamMessage stream) {
            try {
                while (true) {
                    found.append(shown(stream.readObject())).append(", ");
                }
            } catch (MessageEOFException end) {
                return found.toString();
            }
        }
        return found.toString();
    }

    private static String shown(Object value) {
        if (value == null) {
            return "null";
        }
        String kind = value.getClass().getSimpleName() + ":";
        if (value instanceof byte[] bytes) {
            return kind + java.util.HexFormat.of().formatHex(bytes);
        }
        if (value instanceof List<?> list) {
            StringBuilder found = new StringBuilder("List:");
            list.forEach(each -> found.append(shown(each)).append(';'));
            return found.toString();
        }
        if (value instanceof Map<?, ?> map) {
            StringBuilder found = new StringBuilder("Map:");
            map.forEach((name, each) -> found.append(name).append('=').append(shown(each)).append(';'));
            return found.toString();
        }
        return kind + value;
    }

    private static String escaped(String text) {
        StringBuilder found = new StringBuilder();
        text.chars().forEach(each -> found.append(
                each < 32 || each > 126 ? String.format("\\u%04x", each) : String.valueOf((char) each)));
        return found.toString();
    }
}
