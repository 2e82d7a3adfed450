import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.jms.JMSException;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Logins of the user "u", whose password is "right", and of others. */
public final class Logins extends Area {

    public Object rightPassword() throws Exception {
        ActiveMQConnection connection = created("", "u", "right");
        connection.start();
        auto(connection).createProducer(queue()).send(auto(connection).createTextMessage("m"));
        return "sent";
    }

    public Object wrongPassword() throws Exception {
        return refusal("", "u", "wrong");
    }

    public Object unknownUser() throws Exception {
        return refusal("", "missing", "right");
    }

    public Object emptyPassword() throws Exception {
        return refusal("", "u", "");
    }

    public Object noPassword() throws Exception {
        return refusal("", "u", null);
    }

    public Object noLogin() throws Exception {
        return refusal("", null, null);
    }

    /** The client does not try again, though it may do so for ever. */
    public Object wrongPasswordWithFailover() throws Exception {
        return refusal("failover", "u", "wrong");
    }

    public Object afterAFirstRefusal() throws Exception {
        String first = refusal("", "u", "wrong").toString();
        ActiveMQConnection connection = created("", "u", "right");
        connection.start();
        return first.isEmpty() ? "" : "connected";
    }

    public Object listenersOfARefusedConnection() throws Exception {
        List<String> heard = Collections.synchronizedList(new ArrayList<>());
        ActiveMQConnection connection = created("", "u", "wrong");
        connection.setExceptionListener(error -> heard.add(error.getMessage()));
        described(connection::start);
        for (long end = System.currentTimeMillis() + PATIENCE; System.currentTimeMillis() < end; Thread.sleep(5)) {
            if (!heard.isEmpty()) {
                break;
            }
        }
        return heard.get(0);
    }

    private Object refusal(String kind, String user, String password) throws Exception {
        ActiveMQConnection connection = created(kind, user, password);
        long begun = System.nanoTime();
        String error = described(connection::start);
        long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - begun);
        return facts("error", error, "at once", seconds < 5);
    }

    private ActiveMQConnection created(String kind, String user, String password) throws JMSException {
        String address = kind.isEmpty() ? uri() : "failover:(" + uri() + ")";
        return keep((ActiveMQConnection) new ActiveMQConnectionFactory(user, password, address).createConnection());
    }
}
