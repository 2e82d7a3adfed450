import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;

/** `URL QUEUE COUNT`: consumes messages and prints the text of each, JMSRedelivered and JMSXDeliveryCount. */
public final class Redelivered {

    public static void main(String[] arguments) throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        ActiveMQConnection connection = (ActiveMQConnection) factory.createConnection();
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(session.createQueue(arguments[1]));
        for (int count = Integer.parseInt(arguments[2]); count > 0; count--) {
            Message message = consumer.receive(20_000);
            System.out.println(
                    ((TextMessage) message).getText() + " " + message.getJMSRedelivered() + " "
                            + message.getIntProperty("JMSXDeliveryCount"));
        }
        connection.close();
    }
}
