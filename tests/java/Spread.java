import java.util.ArrayList;
import java.util.List;
import java.util.Scanner;
import javax.jms.Connection;
import javax.jms.MessageProducer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;

/**
 * Clients that brokers may move: Spread URI...
 *
 * There is one client for each URI. A line on standard input is a question, the answer a line of JSON: "where" has the
 * remote address of each client, or null while it has none; "send" sends a message with each, and has their number.
 */
public final class Spread {

    public static void main(String[] arguments) throws Exception {
        List<Connection> clients = new ArrayList<>();
        for (String uri : arguments) {
            Connection client = new ActiveMQConnectionFactory(uri).createConnection();
            client.start();
            clients.add(client);
        }
        Scanner questions = new Scanner(System.in);
        while (questions.hasNextLine()) {
            System.out.println(Json.write(questions.nextLine().equals("send") ? send(clients) : addresses(clients)));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static List<Object> addresses(List<Connection> clients) {
        List<Object> found = new ArrayList<>();
        for (Connection client : clients) {
            found.add(((ActiveMQConnection) client).getTransport().getRemoteAddress());
        }
        return found;
    }

    private static Object send(List<Connection> clients) throws Exception {
        int sent = 0;
        for (Connection client : clients) {
            Session session = client.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue("SPREAD"));
            producer.send(session.createTextMessage("text"));
            session.close();
            sent++;
        }
        return sent;
    }
}
