import javax.jms.Connection;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnectionFactory;

/**
 * A stock ActiveMQ client on a pair: sends three orders in a transaction, or receives what there is.
 *
 * <pre>
 *   java -cp 'JARS/*' examples/Orders.java send
 *   java -cp 'JARS/*' examples/Orders.java receive
 * </pre>
 *
 * JARS is the lib directory of an ActiveMQ, on Debian /usr/share/activemq/lib.
 */
public final class Orders {

    private static final String PAIR = "failover:(tcp://127.0.0.1:61616,tcp://127.0.0.1:61626)";

    public static void main(String[] arguments) throws Exception {
        Connection connection = new ActiveMQConnectionFactory(PAIR).createConnection();
        connection.start();
        try {
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            if (arguments.length > 0 && arguments[0].equals("send")) {
                send(session);
            } else {
                receive(session);
            }
        } finally {
            connection.close();
        }
    }

    private static void send(Session session) throws Exception {
        MessageProducer producer = session.createProducer(session.createQueue("ORDERS"));
        for (int number = 1; number <= 3; number++) {
            TextMessage order = session.createTextMessage("order " + number);
            order.setStringProperty("region", "eu");
            producer.send(order);
        }
        session.commit(); // returns once all three are on disk
    }

    private static void receive(Session session) throws Exception {
        MessageConsumer consumer = session.createConsumer(session.createQueue("ORDERS"), "region = 'eu'");
        while (consumer.receive(1000) instanceof TextMessage order) {
            System.out.println(order.getText());
            session.commit();
        }
    }
}
