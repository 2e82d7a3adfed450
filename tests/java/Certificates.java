import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import javax.jms.JMSException;
import javax.jms.Message;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.ActiveMQSslConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTextMessage;

/** Clients that show certificates: whose each is, and what is seen by one that is nobody's. */
public final class Certificates extends Area {

    public Object exactSubject() throws Exception {
        return works("client");
    }

    /** A comma in a name. */
    public Object quotedSubject() throws Exception {
        return works("quoted");
    }

    /** Beyond ASCII, and an e-mail address. */
    public Object otherCharacters() throws Exception {
        return works("accents");
    }

    public Object expression() throws Exception {
        return works("worker-1");
    }

    /** An exact subject and an expression, which is before it in the file. */
    public Object exactAndExpression() throws Exception {
        return works("worker-7");
    }

    /** The expression covers a part of it. */
    public Object expressionWithinASubject() throws Exception {
        return refusal(() -> created("worker-long", ""));
    }

    public Object withAnIntermediateAuthority() throws Exception {
        return works("deep");
    }

    public Object unknownSubject() throws Exception {
        return refusal(() -> created("other", ""));
    }

    public Object unknownSubjectWithFailover() throws Exception {
        return refusal(() -> created("other", "failover"));
    }

    public Object unknownSubjectBesideAPassword() throws Exception {
        return refusal(() -> named("other", "right"));
    }

    public Object noCertificate() throws Exception {
        return refusal(() -> created("", ""));
    }

    public Object noCertificateButAPassword() throws Exception {
        return refusal(() -> named("", "right"));
    }

    public Object expired() throws Exception {
        return refusal(() -> created("expired", ""));
    }

    /** The client has a certificate of an authority that the broker does not know. */
    public Object untrusted() throws Exception {
        return refusal(() -> created("strange", ""));
    }

    public Object textOfADenial() throws Exception {
        ActiveMQConnection connection = created("client", "");
        connection.start();
        return sent(auto(connection), "OTHERS.a");
    }

    /** The user is the certificate's. */
    public Object wrongPasswordBesideACertificate() throws Exception {
        ActiveMQConnection connection = named("client", "wrong");
        connection.start();
        return allowed(connection);
    }

    /** A name is sent along, and another one is in the message. */
    public Object userOnAMessage() throws Exception {
        ActiveMQConnection connection = named("client", "wrong");
        connection.start();
        ActiveMQSession session = auto(connection);
        ActiveMQTextMessage message = (ActiveMQTextMessage) session.createTextMessage("m");
        message.setUserID("forged");
        ActiveMQQueue queue = new ActiveMQQueue("APPS.signed");
        session.createProducer(queue).send(message);
        Message received = session.createConsumer(queue).receive(PATIENCE);
        return received.getStringProperty("JMSXUserID");
    }

    private Object works(String certificate) throws Exception {
        ActiveMQConnection connection = created(certificate, "");
        connection.start();
        return allowed(connection);
    }

    /** What comes of sends to the queues of two groups. */
    private static Object allowed(ActiveMQConnection connection) throws JMSException {
        ActiveMQSession session = auto(connection);
        return facts("apps", outcome(sent(session, "APPS.a")), "others", outcome(sent(session, "OTHERS.a")));
    }

    private static String outcome(String described) {
        return described.equals("nothing") ? "sent" : described.substring(0, described.indexOf(':'));
    }

    private static String sent(ActiveMQSession session, String queue) {
        return described(() -> session.createProducer(new ActiveMQQueue(queue)).send(session.createTextMessage("m")));
    }

    /** The text of a security exception; of another one only its class, as when a handshake fails is seen varies. */
    private static Object refusal(Callable<ActiveMQConnection> creation) {
        long begun = System.nanoTime();
        String error = described(() -> creation.call().start());
        long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - begun);
        boolean isFinal = error.contains("SecurityException");
        return isFinal ? facts("error", error, "at once", seconds < 20) : error.substring(0, error.indexOf(':'));
    }

    private ActiveMQConnection created(String certificate, String kind) throws Exception {
        return keep((ActiveMQConnection) factory(certificate, kind).createConnection());
    }

    /** A connection that gives a name and a password, too. */
    private ActiveMQConnection named(String certificate, String password) throws Exception {
        return keep((ActiveMQConnection) factory(certificate, "").createConnection("u", password));
    }

    private ActiveMQSslConnectionFactory factory(String certificate, String kind) throws Exception {
        String directory = askText("directory");
        var factory = new ActiveMQSslConnectionFactory(kind.isEmpty() ? uri() : "failover:(" + uri() + ")");
        factory.setTrustStore(directory + "/trust.p12");
        factory.setTrustStorePassword("password");
        factory.setTrustStoreType("PKCS12");
        if (!certificate.isEmpty()) {
            factory.setKeyStore(directory + "/" + certificate + ".p12");
            factory.setKeyStorePassword("password");
            factory.setKeyStoreType("PKCS12");
        }
        return factory;
    }
}
