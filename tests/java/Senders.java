import java.util.TreeMap;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;

/** Who sent a message: the user "u" sends what says that "boss" has sent it. */
public final class Senders extends Area {

    public Object nothingSaid() throws Exception {
        return received("", false, false);
    }

    public Object field() throws Exception {
        return received("", true, false);
    }

    public Object property() throws Exception {
        return received("", false, true);
    }

    public Object both() throws Exception {
        return received("", true, true);
    }

    /** The field, in the other form of OpenWire's bytes. */
    public Object tightField() throws Exception {
        return received("?wireFormat.tightEncodingEnabled=true&wireFormat.cacheEnabled=true", true, false);
    }

    /** The field, in a version whose messages the broker encodes again. */
    public Object olderField() throws Exception {
        return received("?wireFormat.version=9", true, false);
    }

    public Object selectedByField() throws Exception {
        return selected(true, false);
    }

    public Object selectedByProperty() throws Exception {
        return selected(false, true);
    }

    private Object received(String options, boolean field, boolean property) throws Exception {
        ActiveMQSession session = auto(user(options));
        send(session, queue(), field, property);
        send(session, queue("stomp"), field, property);
        Message message = session.createConsumer(queue()).receive(PATIENCE);
        return facts("JMSXUserID", message.getStringProperty("JMSXUserID"),
                "properties", new TreeMap<>(((ActiveMQMessage) message).getProperties()));
    }

    /** Whether a selector for "boss" is met. */
    private Object selected(boolean field, boolean property) throws Exception {
        ActiveMQSession session = auto(user(""));
        MessageConsumer consumer = session.createConsumer(queue(), "JMSXUserID = 'boss'");
        send(session, queue(), field, property);
        return !silent(consumer);
    }

    private static void send(ActiveMQSession session, ActiveMQQueue queue, boolean field, boolean property) throws Exception {
        ActiveMQMessage message = (ActiveMQMessage) session.createTextMessage("m");
        if (field) {
            message.setUserID("boss");
        }
        if (property) {
            message.setProperty("JMSXUserID", "boss");
        }
        message.setStringProperty("other", "kept");
        session.createProducer(queue).send(message);
    }

    private ActiveMQConnection user(String options) throws Exception {
        ActiveMQConnection connection =
                keep((ActiveMQConnection) new ActiveMQConnectionFactory("u", "right", uri() + options).createConnection());
        connection.start();
        return connection;
    }
}
