import javax.jms.Connection;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnectionFactory;

/** `URL QUEUE TASK ID BODY`: calls a task of Celery, by a text message with the headers as properties. */
public final class SendTask {

    public static void main(String[] arguments) throws Exception {
        Connection connection = new ActiveMQConnectionFactory(arguments[0]).createConnection();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        TextMessage message = session.createTextMessage(arguments[4]);
        message.setStringProperty("task", arguments[2]);
        message.setStringProperty("id", arguments[3]);
        message.setStringProperty("lang", "java");
        message.setJMSCorrelationID(arguments[3]);
        session.createProducer(session.createQueue(arguments[1])).send(message);
        connection.close();
    }
}
