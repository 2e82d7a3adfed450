import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import javax.jms.DeliveryMode;
import javax.jms.JMSException;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.ScheduledMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTextMessage;
import org.apache.activemq.command.ActiveMQTopic;

/** What users may do: those of the rules in test_rights.py, whose passwords are "pw". Destinations there exist. */
public final class Rights extends Area {

    // ------------------------------------------------------------ sending

    public Object producerOfADeniedQueue() throws Exception {
        ActiveMQConnection connection = user("u");
        ActiveMQSession session = auto(connection);
        String denied = described(() -> session.createProducer(new ActiveMQQueue("S.secret")));
        send(session, new ActiveMQQueue("U.after"), "m");
        return facts("denied", denied, "transport failed", connection.isTransportFailed());
    }

    public Object persistentSend() throws Exception {
        MessageProducer producer = auto(user("u")).createProducer(null);
        TextMessage message = auto(user("u")).createTextMessage("m");
        return described(() -> producer.send(new ActiveMQQueue("S.secret"), message));
    }

    public Object persistentSendToATopic() throws Exception {
        MessageProducer producer = auto(user("u")).createProducer(null);
        TextMessage message = auto(user("u")).createTextMessage("m");
        return described(() -> producer.send(new ActiveMQTopic("S.secret"), message));
    }

    /** It has no answer: the exception listener hears of it. */
    public Object nonPersistentSend() throws Exception {
        ActiveMQConnection connection = user("u");
        List<String> heard = Collections.synchronizedList(new ArrayList<>());
        connection.setExceptionListener(error -> heard.add(error.getClass().getName() + ": " + error.getMessage()));
        ActiveMQSession session = auto(connection);
        MessageProducer producer = session.createProducer(null);
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        String thrown = described(() -> producer.send(new ActiveMQQueue("S.secret"), session.createTextMessage("m")));
        awaitHeard(heard);
        send(session, new ActiveMQQueue("U.after"), "m");
        return facts("thrown", thrown, "heard", heard.get(0), "transport failed", connection.isTransportFailed());
    }

    public Object sendInATransaction() throws Exception {
        ActiveMQConnection connection = user("u");
        List<String> heard = Collections.synchronizedList(new ArrayList<>());
        connection.setExceptionListener(error -> heard.add(error.getClass().getName() + ": " + error.getMessage()));
        ActiveMQSession session = transacted(connection);
        MessageProducer producer = session.createProducer(null);
        producer.send(new ActiveMQQueue("U.transacted"), session.createTextMessage("kept back"));
        producer.send(new ActiveMQQueue("S.secret"), session.createTextMessage("denied"));
        awaitHeard(heard);
        String committed = described(session::commit).replaceAll("TX:\\S+", "TX");
        MessageConsumer consumer = auto(connection).createConsumer(new ActiveMQQueue("U.transacted"));
        return facts("heard", heard.get(0), "commit", committed, "nothing arrived", silent(consumer));
    }

    public Object sendToAMissingQueue() throws Exception {
        ActiveMQSession session = auto(user("w"));
        return described(() -> send(session, new ActiveMQQueue("WO.missing"), "m"));
    }

    public Object sendToAnExistingQueueNeedsNoAdmin() throws Exception {
        send(auto(user("w")), new ActiveMQQueue("RW.x"), "written");
        MessageConsumer consumer = auto(user("r")).createConsumer(new ActiveMQQueue("RW.x"));
        return body(consumer.receive(PATIENCE));
    }

    public Object neitherRightNorQueue() throws Exception {
        ActiveMQSession session = auto(user("u"));
        return described(() -> send(session, new ActiveMQQueue("S.missing"), "m"));
    }

    public Object compositeWithADeniedPart() throws Exception {
        ActiveMQSession session = auto(user("u"));
        return described(() -> send(session, new ActiveMQQueue("U.a,S.secret"), "m"));
    }

    public Object compositeUnderOneRule() throws Exception {
        ActiveMQSession session = auto(user("u"));
        send(session, new ActiveMQQueue("U.c1,U.c2"), "m");
        return List.of(
                body(session.createConsumer(new ActiveMQQueue("U.c1")).receive(PATIENCE)),
                body(session.createConsumer(new ActiveMQQueue("U.c2")).receive(PATIENCE)));
    }

    /** Each part has a rule of its own. */
    public Object compositeUnderTwoRules() throws Exception {
        ActiveMQSession session = auto(user("w"));
        return described(() -> send(session, new ActiveMQQueue("RW.y,WO.y"), "m"));
    }

    public Object scheduledToADeniedQueue() throws Exception {
        ActiveMQSession session = auto(user("u"));
        MessageProducer producer = session.createProducer(null);
        return described(() -> producer.send(new ActiveMQQueue("S.secret"), later(session)));
    }

    public Object scheduledToAMissingQueue() throws Exception {
        ActiveMQSession session = auto(user("w"));
        MessageProducer producer = session.createProducer(null);
        return described(() -> producer.send(new ActiveMQQueue("WO.later"), later(session)));
    }

    public Object managementOfTheScheduler() throws Exception {
        ActiveMQSession session = auto(user("u"));
        return described(() -> send(session, new ActiveMQTopic(ScheduledMessage.AMQ_SCHEDULER_MANAGEMENT_DESTINATION), "m"));
    }

    /** Copies go to queues that the sender has no right to. */
    public Object virtualTopic() throws Exception {
        MessageConsumer consumer = auto(user("admin")).createConsumer(new ActiveMQQueue("Consumer.a.VirtualTopic.U"));
        send(auto(user("u")), new ActiveMQTopic("VirtualTopic.U"), "m");
        return body(consumer.receive(PATIENCE));
    }

    /** It says another one itself. */
    public Object userOnAMessage() throws Exception {
        ActiveMQSession session = auto(user("u"));
        ActiveMQTextMessage message = (ActiveMQTextMessage) session.createTextMessage("m");
        message.setUserID("forged");
        session.createProducer(new ActiveMQQueue("U.signed")).send(message);
        return session.createConsumer(new ActiveMQQueue("U.signed")).receive(PATIENCE).getStringProperty("JMSXUserID");
    }

    // ------------------------------------------------------------ consuming

    public Object consumerOfADeniedQueue() throws Exception {
        ActiveMQConnection connection = user("u");
        ActiveMQSession session = auto(connection);
        String denied = described(() -> session.createConsumer(new ActiveMQQueue("S.secret")));
        send(session, new ActiveMQQueue("U.own"), "m");
        Object own = body(session.createConsumer(new ActiveMQQueue("U.own")).receive(PATIENCE));
        return facts("denied", denied, "own", own, "transport failed", connection.isTransportFailed());
    }

    public Object consumerOfAMissingQueue() throws Exception {
        ActiveMQSession session = auto(user("r"));
        return described(() -> session.createConsumer(new ActiveMQQueue("RO.missing")));
    }

    public Object browser() throws Exception {
        ActiveMQSession session = auto(user("u"));
        return described(() -> session.createBrowser(new ActiveMQQueue("S.secret")).getEnumeration());
    }

    public Object durableSubscriber() throws Exception {
        ActiveMQConnection connection = created("u");
        connection.setClientID(named("id"));
        connection.start();
        return described(() -> auto(connection).createDurableSubscriber(new ActiveMQTopic("S.secret"), "d"));
    }

    /** Of a topic that exists: is more than read needed? */
    public Object durableSubscriberWithoutAdmin() throws Exception {
        send(auto(user("admin")), new ActiveMQTopic("RO.topic"), "creates it");
        ActiveMQConnection connection = created("r");
        connection.setClientID(named("id"));
        connection.start();
        return described(() -> auto(connection).createDurableSubscriber(new ActiveMQTopic("RO.topic"), "d"));
    }

    public Object wildcardWithinARule() throws Exception {
        ActiveMQSession session = auto(user("u"));
        send(session, new ActiveMQQueue("U.w.a"), "m");
        return List.of(
                body(session.createConsumer(new ActiveMQQueue("U.w.*")).receive(PATIENCE)),
                described(() -> session.createConsumer(new ActiveMQQueue("U.w.>"))));
    }

    /** It covers more than the rule does: messages of the queues in both come, and of no other. */
    public Object wildcardAcrossRules() throws Exception {
        ActiveMQSession admin = auto(user("admin"));
        send(admin, new ActiveMQQueue("U.both"), "readable");
        send(admin, new ActiveMQQueue("S.both"), "secret");
        MessageConsumer consumer = auto(user("u")).createConsumer(new ActiveMQQueue("*.both"));
        Object first = body(consumer.receive(PATIENCE));
        return facts("first", first, "silent", silent(consumer));
    }

    public Object wildcardAcrossRulesOfTopics() throws Exception {
        MessageConsumer consumer = auto(user("u")).createConsumer(new ActiveMQTopic("*.both"));
        ActiveMQSession admin = auto(user("admin"));
        send(admin, new ActiveMQTopic("S.both"), "secret");
        send(admin, new ActiveMQTopic("U.both"), "readable");
        return take(consumer, 1);
    }

    public Object wildcardOutsideTheRules() throws Exception {
        ActiveMQSession session = auto(user("u"));
        return described(() -> session.createConsumer(new ActiveMQQueue("S.*")));
    }

    public Object compositeConsumer() throws Exception {
        ActiveMQSession session = auto(user("u"));
        return described(() -> session.createConsumer(new ActiveMQQueue("U.a,S.secret")));
    }

    public Object deadLetters() throws Exception {
        ActiveMQSession session = auto(user("u"));
        MessageProducer producer = session.createProducer(new ActiveMQQueue("U.expiring"));
        producer.setTimeToLive(1);
        producer.send(session.createTextMessage("expired"));
        Thread.sleep(20);
        session.createConsumer(new ActiveMQQueue("U.expiring")).receive(SILENCE);
        String denied = described(() -> session.createConsumer(new ActiveMQQueue("ActiveMQ.DLQ")));
        return facts("denied", denied);
    }

    // ------------------------------------------------------------ creating, removing

    public Object temporaryQueue() throws Exception {
        ActiveMQSession session = auto(user("u"));
        return described(session::createTemporaryQueue).replaceAll("ID:\\S+", "ID");
    }

    public Object temporaryQueueOfAnAdmin() throws Exception {
        ActiveMQSession session = auto(user("admin"));
        var queue = session.createTemporaryQueue();
        send(session, queue, "m");
        return body(session.createConsumer(queue).receive(PATIENCE));
    }

    public Object removalOfAnExistingQueue() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("S.removed");
        send(auto(user("admin")), queue, "m");
        return described(() -> user("u").destroyDestination(queue));
    }

    public Object removalByAnAdmin() throws Exception {
        ActiveMQQueue queue = new ActiveMQQueue("S.removed.by.admin");
        send(auto(user("admin")), queue, "m");
        return described(() -> user("admin").destroyDestination(queue));
    }

    public Object unsubscribe() throws Exception {
        ActiveMQConnection owner = created("admin");
        owner.setClientID(named("id"));
        owner.start();
        auto(owner).createDurableSubscriber(new ActiveMQTopic("S.secret"), "d").close();
        owner.close();
        ActiveMQConnection other = created("u");
        return described(() -> {
            other.setClientID(named("id"));
            other.start();
            auto(other).unsubscribe("d");
        });
    }

    // ------------------------------------------------------------ advisories

    public Object advisoriesOfConnections() throws Exception {
        String address = uri() + "?jms.watchTopicAdvisories=false";
        ActiveMQConnection connection =
                keep((ActiveMQConnection) new ActiveMQConnectionFactory("lone", "pw", address).createConnection());
        ActiveMQSession session = auto(connection);
        return described(() -> session.createConsumer(new ActiveMQTopic("ActiveMQ.Advisory.Connection")));
    }

    /** A user who may write there sends an advisory. */
    public Object forgedAdvisory() throws Exception {
        MessageConsumer consumer = auto(user("admin")).createConsumer(new ActiveMQTopic("ActiveMQ.Advisory.Forged"));
        ActiveMQSession session = auto(user("admin"));
        String sent = described(() -> send(session, new ActiveMQTopic("ActiveMQ.Advisory.Forged"), "forged"));
        return facts("sent", sent, "arrived", !silent(consumer));
    }

    /** The user "lone" may not read them; a client subscribes to those of temporary destinations as it starts. */
    public Object startWithoutRightToAdvisories() throws Exception {
        return described(created("lone")::start);
    }

    public Object startWithoutRightAndWithFailover() throws Exception {
        ActiveMQConnection connection =
                keep((ActiveMQConnection) new ActiveMQConnectionFactory("lone", "pw", "failover:(" + uri() + ")").createConnection());
        return described(connection::start);
    }

    // ------------------------------------------------------------ helpers

    private ActiveMQConnection created(String user) throws JMSException {
        return keep((ActiveMQConnection) new ActiveMQConnectionFactory(user, "pw", uri()).createConnection());
    }

    private ActiveMQConnection user(String name) throws JMSException {
        ActiveMQConnection connection = created(name);
        connection.start();
        return connection;
    }

    private static TextMessage later(Session session) throws JMSException {
        TextMessage message = session.createTextMessage("later");
        message.setLongProperty(ScheduledMessage.AMQ_SCHEDULED_DELAY, 3_600_000);
        return message;
    }

    private static void awaitHeard(List<String> heard) throws InterruptedException {
        for (long end = System.currentTimeMillis() + PATIENCE; heard.isEmpty(); Thread.sleep(5)) {
            if (System.currentTimeMillis() > end) {
                heard.add("nothing");
            }
        }
    }
}
