import java.io.Serializable;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.Destination;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.ObjectMessage;
import javax.jms.Session;
import javax.jms.StreamMessage;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.command.ActiveMQMessage;

/** Every type of message with bodies, headers and properties of every kind, small and large, plain and compressed. */
public final class Messages extends Area {

    private static final int LARGE = 2 << 20;

    private Session session;
    private MessageProducer producer;
    private MessageConsumer consumer;

    private void open(String options) throws Exception {
        Connection connection = connect(options);
        session = auto(connection);
        producer = session.createProducer(queue());
        consumer = session.createConsumer(queue());
    }

    /** Send a message and return it as it was received. */
    @SuppressWarnings("unchecked")
    private <M extends Message> M through(M message) throws Exception {
        producer.send(message);
        return (M) consumer.receive(PATIENCE);
    }

    // ------------------------------------------------------------ bodies

    public Object texts() throws Exception {
        open("");
        List<Object> received = new ArrayList<>();
        for (String text : new String[] {"plain", "", null, "Grüße, 東京, \uD83D\uDE00, \0 and \t\r\n", "x".repeat(70_000)}) {
            TextMessage message = session.createTextMessage();
            message.setText(text);
            String came = through(message).getText();
            received.add(came == null ? null : came.equals(text) ? "same, " + came.length() : came);
        }
        return received;
    }

    private BytesMessage bytes() throws Exception {
        BytesMessage message = session.createBytesMessage();
        message.writeBoolean(true);
        message.writeByte((byte) -1);
        message.writeShort((short) -2);
        message.writeChar('ß');
        message.writeInt(-3);
        message.writeLong(Long.MIN_VALUE);
        message.writeFloat(1.5f);
        message.writeDouble(-2.5);
        message.writeUTF("text");
        message.writeBytes(new byte[] {1, 2, 3});
        return message;
    }

    private static Object read(BytesMessage message) throws Exception {
        byte[] rest = new byte[10];
        List<Object> values = new ArrayList<>(List.of(
                message.getBodyLength(), message.readBoolean(), message.readByte(), message.readShort(),
                String.valueOf(message.readChar()), message.readInt(), message.readLong(), message.readFloat(),
                message.readDouble(), message.readUTF()));
        values.add(message.readBytes(rest));
        values.add(HexFormat.of().formatHex(rest));
        return values;
    }

    public Object bytesMessage() throws Exception {
        open("");
        return read(through(bytes()));
    }

    public Object emptyBytesMessage() throws Exception {
        open("");
        return through(session.createBytesMessage()).getBodyLength();
    }

    private MapMessage map() throws Exception {
        MapMessage message = session.createMapMessage();
        message.setBoolean("boolean", true);
        message.setByte("byte", (byte) 1);
        message.setShort("short", (short) 2);
        message.setChar("char", 'c');
        message.setInt("int", 3);
        message.setLong("long", 4L);
        message.setFloat("float", 5.5f);
        message.setDouble("double", 6.5);
        message.setString("string", "seven");
        message.setBytes("bytes", new byte[] {8, 9});
        message.setObject("null", null);
        message.setObject("list", List.of(1, "two"));
        message.setObject("map", Map.of("key", 3L));
        return message;
    }

    private static Object read(MapMessage message) throws Exception {
        Map<String, Object> values = new TreeMap<>();
        for (Enumeration<?> names = message.getMapNames(); names.hasMoreElements(); ) {
            String name = (String) names.nextElement();
            Object value = message.getObject(name);
            values.put(name, value instanceof List || value instanceof Map ? value.toString() : typed(value));
        }
        return values;
    }

    public Object mapMessage() throws Exception {
        open("");
        return read(through(map()));
    }

    private StreamMessage stream() throws Exception {
        StreamMessage message = session.createStreamMessage();
        message.writeBoolean(false);
        message.writeByte((byte) 1);
        message.writeShort((short) 2);
        message.writeChar('c');
        message.writeInt(3);
        message.writeLong(4L);
        message.writeFloat(5.5f);
        message.writeDouble(6.5);
        message.writeString("seven");
        message.writeObject(null);
        message.writeBytes(new byte[] {8, 9});
        return message;
    }

    private static Object read(StreamMessage message) throws Exception {
        List<Object> values = new ArrayList<>();
        for (int index = 0; index < 11; index++) {
            values.add(typed(message.readObject()));
        }
        values.add(thrown(message::readObject));
        return values;
    }

    public Object streamMessage() throws Exception {
        open("");
        return read(through(stream()));
    }

    public Object objectMessage() throws Exception {
        open("jms.trustAllPackages=true");
        Map<String, Serializable> value = new LinkedHashMap<>();
        value.put("list", new ArrayList<>(List.of(1, 2L, "three")));
        value.put("number", 5);
        return through(session.createObjectMessage((Serializable) value)).getObject().toString();
    }

    public Object messageWithoutABody() throws Exception {
        open("");
        Message message = session.createMessage();
        message.setStringProperty("only", "this");
        Message received = through(message);
        return facts("type", received.getClass().getSimpleName(), "properties", properties(received));
    }

    public Object receivedMessagesAreReadOnly() throws Exception {
        open("");
        TextMessage received = through(session.createTextMessage("x"));
        return facts(
                "body", thrown(act(() -> received.setText("y"))),
                "properties", thrown(act(() -> received.setIntProperty("a", 1))));
    }

    // ------------------------------------------------------------ properties and headers

    private static void setProperties(Message message) throws Exception {
        message.setBooleanProperty("boolean", true);
        message.setByteProperty("byte", (byte) 1);
        message.setShortProperty("short", (short) 2);
        message.setIntProperty("int", 3);
        message.setLongProperty("long", 4L);
        message.setFloatProperty("float", 5.5f);
        message.setDoubleProperty("double", 6.5);
        message.setStringProperty("string", "sieben ß 東");
        message.setObjectProperty("null", null);
        message.setObjectProperty("list", List.of(1, "two"));
        message.setStringProperty("long string", "x".repeat(70_000));
    }

    public Object propertiesOfEveryType() throws Exception {
        open("");
        Message message = session.createTextMessage("x");
        setProperties(message);
        Map<String, Object> found = new TreeMap<>();
        Message received = through(message);
        for (Enumeration<?> names = received.getPropertyNames(); names.hasMoreElements(); ) {
            String name = (String) names.nextElement();
            Object value = received.getObjectProperty(name);
            found.put(name, name.equals("long string") ? ((String) value).length() : value instanceof List
                    ? value.toString() : typed(value));
        }
        return found;
    }

    public Object manyProperties() throws Exception {
        open("");
        Message message = session.createMessage();
        for (int number = 0; number < 500; number++) {
            message.setIntProperty("property" + number, number);
        }
        Message received = through(message);
        long sum = 0;
        for (int number = 0; number < 500; number++) {
            sum += received.getIntProperty("property" + number);
        }
        return sum;
    }

    public Object headers() throws Exception {
        open("");
        TextMessage message = session.createTextMessage("x");
        message.setJMSCorrelationID("correlated");
        message.setJMSType("type");
        message.setJMSReplyTo(topic("answers"));
        message.setStringProperty("JMSXGroupID", "group");
        message.setIntProperty("JMSXGroupSeq", 7);
        producer.send(message, DeliveryMode.PERSISTENT, 9, 60_000);
        Message received = consumer.receive(PATIENCE);
        return facts(
                "correlation id", received.getJMSCorrelationID(),
                "type", received.getJMSType(),
                "reply to", received.getJMSReplyTo().toString(),
                "destination", received.getJMSDestination().toString(),
                "delivery mode", received.getJMSDeliveryMode(),
                "priority", received.getJMSPriority(),
                "time to live", received.getJMSExpiration() - received.getJMSTimestamp(),
                "same timestamp", received.getJMSTimestamp() == message.getJMSTimestamp(),
                "same id", received.getJMSMessageID().equals(message.getJMSMessageID()),
                "redelivered", received.getJMSRedelivered(),
                "deliveries", received.getIntProperty("JMSXDeliveryCount"),
                "group", received.getStringProperty("JMSXGroupID") + " " + received.getIntProperty("JMSXGroupSeq"),
                "user", received.getStringProperty("JMSXUserID"),
                "original destination", String.valueOf(((ActiveMQMessage) received).getOriginalDestination()));
    }

    public Object headersAsSentByDefault() throws Exception {
        open("");
        Message received = through(session.createTextMessage("x"));
        return facts(
                "correlation id", received.getJMSCorrelationID(),
                "type", received.getJMSType(),
                "reply to", String.valueOf(received.getJMSReplyTo()),
                "delivery mode", received.getJMSDeliveryMode(),
                "priority", received.getJMSPriority(),
                "expiration", received.getJMSExpiration(),
                "properties", properties(received));
    }

    public Object replyToOfEveryKind() throws Exception {
        open("");
        List<Object> received = new ArrayList<>();
        for (Destination destination : List.of(queue("a"), topic("b"))) {
            Message message = session.createMessage();
            message.setJMSReplyTo(destination);
            received.add(through(message).getJMSReplyTo().toString());
        }
        Destination temporary = session.createTemporaryQueue();
        Message message = session.createMessage();
        message.setJMSReplyTo(temporary);
        received.add(through(message).getJMSReplyTo().equals(temporary));
        return received;
    }

    public Object correlationIdAsBytes() throws Exception {
        open("");
        Message message = session.createMessage();
        message.setJMSCorrelationIDAsBytes("bytes ß".getBytes("UTF-8"));
        return through(message).getJMSCorrelationIDAsBytes();
    }

    public Object timestampCanBeLeftOut() throws Exception {
        open("");
        producer.setDisableMessageTimestamp(true);
        return through(session.createMessage()).getJMSTimestamp();
    }

    public Object brokerStampsItsTimes() throws Exception {
        open("");
        ActiveMQMessage received = (ActiveMQMessage) through(session.createMessage());
        return facts("in", received.getBrokerInTime() > 0, "out", received.getBrokerOutTime() > 0);
    }

    public Object aReceivedMessageCanBeSentOn() throws Exception {
        open("");
        TextMessage message = session.createTextMessage("on");
        message.setIntProperty("number", 5);
        TextMessage received = through(message);
        String firstId = received.getJMSMessageID();
        session.createProducer(queue("next")).send(received);
        TextMessage next = (TextMessage) session.createConsumer(queue("next")).receive(PATIENCE);
        return facts(
                "body", next.getText(), "properties", properties(next),
                "destination", next.getJMSDestination().toString(),
                "new id", !next.getJMSMessageID().equals(firstId));
    }

    // ------------------------------------------------------------ sizes, compression

    private static String digest(byte[] content) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(content));
    }

    private static byte[] large() {
        byte[] content = new byte[LARGE];
        new java.util.Random(1).nextBytes(content);
        return content;
    }

    private Object sendLarge(String options) throws Exception {
        open(options);
        byte[] content = large();
        List<Object> received = new ArrayList<>();
        for (int mode : List.of(DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT)) {
            producer.setDeliveryMode(mode);
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(content);
            byte[] came = (byte[]) body(through(message));
            received.add(came.length + " " + digest(came).equals(digest(content)));
            TextMessage text = session.createTextMessage("äx".repeat(LARGE / 2));
            received.add(through(text).getText().equals("äx".repeat(LARGE / 2)));
        }
        return received;
    }

    public Object largeMessages() throws Exception {
        return sendLarge("");
    }

    public Object largeCompressedMessages() throws Exception {
        return sendLarge("jms.useCompression=true");
    }

    public Object largeMessageToManyConsumers() throws Exception {
        open("");
        List<MessageConsumer> consumers = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            consumers.add(auto(connect()).createConsumer(topic()));
        }
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(large());
        session.createProducer(topic()).send(message);
        List<Object> received = new ArrayList<>();
        for (MessageConsumer each : consumers) {
            received.add(digest((byte[]) body(each.receive(PATIENCE))).equals(digest(large())));
        }
        return received;
    }

    public Object compressed() throws Exception {
        open("jms.useCompression=true");
        TextMessage text = through(session.createTextMessage("compressed ".repeat(100)));
        ObjectMessage object = through(session.createObjectMessage("object"));
        BytesMessage bytes = through(bytes());
        MapMessage map = through(map());
        StreamMessage stream = through(stream());
        return facts(
                "compressed", ((ActiveMQMessage) text).isCompressed(),
                "text", text.getText().equals("compressed ".repeat(100)),
                "object", object.getObject(),
                "bytes", read(bytes),
                "map", read(map),
                "stream", read(stream));
    }

    /** All through a durable subscription that was away, and so through the store. */
    public Object everyTypeThroughTheStore() throws Exception {
        Connection away = identified("Messages.store");
        auto(away).createDurableSubscriber(topic(), "s").close();
        away.close();
        session = auto(connect());
        producer = session.createProducer(topic());
        Message plain = session.createMessage();
        setProperties(plain);
        for (Message message : List.of(plain, bytes(), map(), stream(), session.createTextMessage("text"),
                session.createObjectMessage("object"))) {
            producer.send(message);
        }
        ActiveMQSession back = auto(identified("Messages.store"));
        MessageConsumer subscriber = back.createDurableSubscriber(topic(), "s");
        Message first = subscriber.receive(PATIENCE);
        Object outcome = facts(
                "properties", first.getStringProperty("string") + first.getObjectProperty("list"),
                "bytes", read((BytesMessage) subscriber.receive(PATIENCE)),
                "map", read((MapMessage) subscriber.receive(PATIENCE)),
                "stream", read((StreamMessage) subscriber.receive(PATIENCE)),
                "text", ((TextMessage) subscriber.receive(PATIENCE)).getText(),
                "object", ((ObjectMessage) subscriber.receive(PATIENCE)).getObject());
        subscriber.close();
        back.unsubscribe("s");
        return outcome;
    }
}
