import java.util.List;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.XAConnection;
import javax.jms.XASession;
import javax.transaction.xa.XAResource;
import org.apache.activemq.ActiveMQXAConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** What a kill must not destroy: `before` makes it, the test kills the broker and starts another, `after` looks. */
public final class Survival extends Area {

    private static final ActiveMQQueue PLAIN = new ActiveMQQueue("SURVIVAL.PLAIN");
    private static final ActiveMQQueue SENT = new ActiveMQQueue("SURVIVAL.SENT");
    private static final ActiveMQQueue ABORTED = new ActiveMQQueue("SURVIVAL.ABORTED");
    private static final ActiveMQQueue TAKEN = new ActiveMQQueue("SURVIVAL.TAKEN");
    private static final ActiveMQQueue LATER = new ActiveMQQueue("SURVIVAL.LATER");
    private static final ActiveMQQueue DOUBTED = new ActiveMQQueue("SURVIVAL.DOUBTED");
    private static final ActiveMQQueue OPEN = new ActiveMQQueue("SURVIVAL.OPEN");
    private static final ActiveMQTopic TOPIC = new ActiveMQTopic("SURVIVAL.TOPIC");
    private static final Xa.Branch COMMITTED = new Xa.Branch("survival committed");
    private static final Xa.Branch ROLLED_BACK = new Xa.Branch("survival rolled back");
    private static final Xa.Branch RECEIVED = new Xa.Branch("survival received");
    private static final Xa.Branch UNPREPARED = new Xa.Branch("survival unprepared");

    private XASession xaSession() throws Exception {
        XAConnection connection = keep(new ActiveMQXAConnectionFactory(uri()).createXAConnection());
        connection.start();
        return connection.createXASession();
    }

    private static void branch(XASession session, Xa.Branch branch, Action work) throws Exception {
        session.getXAResource().start(branch, XAResource.TMNOFLAGS);
        work.run();
        session.getXAResource().end(branch, XAResource.TMSUCCESS);
    }

    public Object before() throws Exception {
        Connection owner = identified("survival");
        auto(owner).createDurableSubscriber(TOPIC, "s", "n > 0", false).close();
        Session session = auto(owner);
        send(session, PLAIN, "m0", "m1", "m2");
        take(session.createConsumer(PLAIN), 1);
        session.close();
        awaitBroker(owner);
        Session publisher = auto(owner);
        MessageProducer producer = publisher.createProducer(TOPIC);
        for (int number = 0; number < 3; number++) {
            Message message = publisher.createTextMessage("t" + number);
            message.setIntProperty("n", number);
            producer.send(message);
        }
        XASession xa = xaSession();
        Message doubted = xa.createTextMessage("later");
        doubted.setLongProperty("AMQ_SCHEDULED_DELAY", 100);
        branch(xa, COMMITTED, () -> {
            send(xa, SENT, "prepared");
            xa.createProducer(DOUBTED).send(doubted);
        });
        branch(xa, ROLLED_BACK, () -> send(xa, ABORTED, "never"));
        branch(xa, UNPREPARED, () -> send(xa, ABORTED, "never"));
        send(publisher, TAKEN, "taken", "left");
        MessageConsumer taker = xa.createConsumer(TAKEN);
        branch(xa, RECEIVED, () -> take(taker, 1));
        List<Object> votes = List.of(xa.getXAResource().prepare(COMMITTED), xa.getXAResource().prepare(ROLLED_BACK),
                xa.getXAResource().prepare(RECEIVED));
        Message later = publisher.createTextMessage("later");
        later.setLongProperty("AMQ_SCHEDULED_DELAY", 1_500);
        publisher.createProducer(LATER).send(later, DeliveryMode.PERSISTENT, 4, 0);
        Session open = transacted(owner);
        send(open, OPEN, "never");
        awaitBroker(owner);
        // Nothing is closed: the broker's end comes with everything open.
        return facts("votes", votes, "killed", ask("kill"));
    }

    public Object after() throws Exception {
        XASession xa = xaSession();
        XAResource resource = xa.getXAResource();
        List<Object> known = Xa.recovered(resource, "survival");
        List<Object> invisible = drain(SENT);
        List<Object> locked = drain(TAKEN);
        resource.commit(COMMITTED, false);
        resource.rollback(ROLLED_BACK);
        resource.commit(RECEIVED, false);
        MessageConsumer durable = auto(identified("survival")).createDurableSubscriber(TOPIC, "s", "n > 0", false);
        return facts(
                "plain", drain(PLAIN),
                "durable", drain(durable, 2),
                "recover", known, "before the commit", invisible, "committed", drain(SENT),
                "rolled back", drain(ABORTED), "taken", locked, "after", drain(TAKEN),
                "unprepared", Xa.answer(act(() -> resource.commit(UNPREPARED, false))),
                "left open", drain(OPEN),
                "recover after", Xa.recovered(resource, "survival"),
                "later", take(auto(connect()).createConsumer(LATER), 1));
    }

    /** What a prepared branch had scheduled, once `after` has committed it. */
    public Object scheduledInDoubt() throws Exception {
        return take(auto(connect()).createConsumer(DOUBTED), 1);
    }
}
