import java.util.ArrayList;
import java.util.List;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;

/**
 * Redelivery by the broker: queues that begin with "Redeliveries." have a policy of two redeliveries, after one second
 * and after one and a half. The client leaves all of it to the broker.
 */
public final class Redeliveries extends Area {

    private static final long LATER = 6000;

    private Session transacted() throws Exception {
        ActiveMQConnection connection = (ActiveMQConnection) connect();
        connection.getRedeliveryPolicy().setMaximumRedeliveries(0);
        return connection.createSession(true, Session.SESSION_TRANSACTED);
    }

    private List<Object> rejected(Session session, ActiveMQQueue queue, int times) throws Exception {
        MessageConsumer consumer = session.createConsumer(queue);
        List<Object> seen = new ArrayList<>();
        String id = null;
        for (int index = 0; index < times; index++) {
            Message message = consumer.receive(LATER);
            if (message == null) {
                seen.add("nothing");
                break;
            }
            id = id == null ? message.getJMSMessageID() : id;
            seen.add(facts(
                    "redelivered", message.getJMSRedelivered(), "count", message.getIntProperty("JMSXDeliveryCount"),
                    "delay", message.getObjectProperty("redeliveryDelay"), "same id", id.equals(message.getJMSMessageID()),
                    "color", message.getStringProperty("color"), "mode", message.getJMSDeliveryMode()));
            session.rollback();
        }
        return seen;
    }

    private Object dead(String text) throws Exception {
        Session session = auto(connect());
        MessageConsumer dead = session.createConsumer(new ActiveMQQueue("ActiveMQ.DLQ"), "color = '" + text + "'");
        ActiveMQMessage message = (ActiveMQMessage) dead.receive(LATER);
        return message == null ? "none" : facts(
                "counter", message.getRedeliveryCounter(), "delay", message.getObjectProperty("redeliveryDelay"),
                "original", String.valueOf(message.getOriginalDestination()));
    }

    private void send(ActiveMQQueue queue) throws Exception {
        Session session = auto(connect());
        Message message = session.createTextMessage("m");
        message.setStringProperty("color", queue.getPhysicalName());
        session.createProducer(queue).send(message);
    }

    public Object untilItIsADeadLetter() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("Redeliveries.dead");
        send(queue);
        return facts("seen", rejected(transacted(), queue, 3), "dead", dead("Redeliveries.dead"));
    }

    public Object acknowledgedAtLast() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("Redeliveries.late");
        send(queue);
        Session session = transacted();
        List<Object> seen = rejected(session, queue, 1);
        session.close();
        Message message = auto(connect()).createConsumer(queue).receive(LATER);
        return facts("seen", seen.size(), "count", message.getIntProperty("JMSXDeliveryCount"));
    }

    public Object droppedWithoutAPolicy() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("Others.dropped");
        send(queue);
        return facts("seen", rejected(transacted(), queue, 1).size(), "dead", dead("Others.dropped"));
    }
}
