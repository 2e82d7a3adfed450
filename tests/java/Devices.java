import java.util.ArrayList;
import java.util.Enumeration;
import java.util.HexFormat;
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
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** JMS clients of devices that speak MQTT. The test is the device, and does what it is asked for. */
public final class Devices extends Area {

    private Session session;

    private MessageConsumer consumer(String topic) throws Exception {
        session = auto(connect());
        return session.createConsumer(new ActiveMQTopic(topic));
    }

    private static byte[] octets(Message message) throws Exception {
        BytesMessage bytes = (BytesMessage) message;
        byte[] body = new byte[(int) bytes.getBodyLength()];
        bytes.readBytes(body);
        return body;
    }

    private static Map<String, Object> typed(Message message) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Enumeration<?> names = message.getPropertyNames(); names.hasMoreElements(); ) {
            String name = (String) names.nextElement();
            Object value = message.getObjectProperty(name);
            found.put(name, value.getClass().getSimpleName() + " " + value);
        }
        return found;
    }

    /** What a device publishes with each QoS. */
    public Object published() throws Exception {
        MessageConsumer consumer = consumer("devices.published.*");
        ask("publish");
        List<Object> received = new ArrayList<>();
        for (int qos = 0; qos <= 2; qos++) {
            Message message = consumer.receive(PATIENCE);
            received.add(facts(
                    "topic", message.getJMSDestination().toString(),
                    "body", HexFormat.of().formatHex(octets(message)),
                    "persistent", message.getJMSDeliveryMode() == DeliveryMode.PERSISTENT,
                    "priority", message.getJMSPriority(),
                    "expires", message.getJMSExpiration() > 0,
                    "properties", typed(message)));
        }
        return received;
    }

    /** The properties of MQTT 5. */
    public Object properties() throws Exception {
        MessageConsumer consumer = consumer("devices.properties");
        ask("publish with properties");
        Message message = consumer.receive(PATIENCE);
        long left = message.getJMSExpiration() - System.currentTimeMillis();
        return facts(
                "reply to", message.getJMSReplyTo().toString(),
                "correlation id", message.getJMSCorrelationID(),
                "expires within the minute", left > 0 && left <= 60_000,
                "properties", typed(message));
    }

    /** The names of topics. */
    public Object names() throws Exception {
        MessageConsumer consumer = consumer("devices.names.>");
        ask("publish names");
        List<Object> received = new ArrayList<>();
        for (Message message; (message = consumer.receive(PATIENCE)) != null && octets(message).length > 0; ) {
            received.add(((ActiveMQDestination) message.getJMSDestination()).getPhysicalName());
        }
        return received;
    }

    /** What devices get of each type of message. */
    public Object sent() throws Exception {
        session = auto(connect());
        ask("subscribe");
        MessageProducer producer = session.createProducer(new ActiveMQTopic("devices.sent"));
        producer.send(session.createTextMessage("Grüße"));
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {0, -1});
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        producer.send(bytes);
        MapMessage map = session.createMapMessage();
        map.setInt("n", 5);
        producer.send(map);
        Message withQos = session.createMessage();
        withQos.setIntProperty("ActiveMQ.MQTT.QoS", 2);
        withQos.setStringProperty("colour", "red");
        producer.send(withQos);
        return ask("received");
    }

    /** A JMS service that answers devices: it sends to the reply destination, with the correlation id of the request. */
    public Object service() throws Exception {
        MessageConsumer consumer = consumer("devices.service");
        ask("request");
        for (int count = 0; count < 2; count++) {
            Message request = consumer.receive(PATIENCE);
            Message answer = session.createTextMessage(new String(octets(request)).toUpperCase());
            answer.setJMSCorrelationID(request.getJMSCorrelationID());
            if (request.propertyExists("MQTT_CORRELATION_DATA")) {
                answer.setStringProperty("MQTT_CORRELATION_DATA", request.getStringProperty("MQTT_CORRELATION_DATA"));
            }
            session.createProducer(request.getJMSReplyTo()).send(answer);
        }
        return ask("answers");
    }

    /** A JMS client whose requests a device answers. */
    public Object client() throws Exception {
        MessageConsumer answers = consumer("devices.client.answers");
        ask("serve");
        Message request = session.createTextMessage("ping");
        request.setJMSReplyTo(new ActiveMQTopic("devices.client.answers"));
        request.setJMSCorrelationID("7");
        session.createProducer(new ActiveMQTopic("devices.client.requests")).send(request);
        ask("answer");
        Message answer = answers.receive(PATIENCE);
        return facts("body", new String(octets(answer)), "correlation id", answer.getJMSCorrelationID());
    }

    /** A temporary destination is no topic that a device could publish to, so it gets no response topic. */
    public Object clientWithTemporaryTopic() throws Exception {
        session = auto(connect());
        ask("serve");
        Message request = session.createTextMessage("ping");
        request.setJMSReplyTo(session.createTemporaryTopic());
        session.createProducer(new ActiveMQTopic("devices.client.requests")).send(request);
        return ask("response topic");
    }

    /** The queue of a session, with the strategy of virtual topics, whose name has wildcards. */
    public Object queueOfSession() throws Exception {
        String name = "Consumer.device:AT_LEAST_ONCE.VirtualTopic.devices.*.queue";
        ask("leave a session behind");
        session = auto(connect());
        MessageConsumer consumer = session.createConsumer(new ActiveMQQueue(name));
        Message message = consumer.receive(PATIENCE);
        return facts(
                "destination", message.getJMSDestination().toString(),
                "original", String.valueOf(((org.apache.activemq.command.Message) message).getOriginalDestination()),
                "body", new String(octets(message)));
    }
}
