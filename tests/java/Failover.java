import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TemporaryQueue;
import javax.jms.TextMessage;
import javax.jms.XAConnection;
import javax.jms.XASession;
import javax.transaction.xa.XAResource;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQXAConnectionFactory;

/**
 * A client with a failover: address whose broker is killed, or whose connection is cut at the worst moment.
 *
 * Asks the test: "kill" (the master is killed, and another one serves), "master" (its address), "proxy" (an address that
 * leads to the master), and of the proxy "mute" (the client receives nothing any more) and "cut".
 */
public final class Failover extends Area {

    // ------------------------------------------------------------ killed brokers

    public Object consumerCarriesOn() throws Exception {
        fill(queue(), 5);
        Connection connection = connect();
        MessageConsumer consumer = auto(connection).createConsumer(queue());
        List<Object> before = take(consumer, 2);
        awaitBroker(connection);
        ask("kill");
        return facts("before", before, "after", take(consumer, 3), "rest", drain(consumer));
    }

    public Object listenerCarriesOn() throws Exception {
        Connection connection = connect();
        List<Object> received = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch first = new CountDownLatch(2);
        CountDownLatch all = new CountDownLatch(4);
        auto(connection).createConsumer(queue()).setMessageListener(message -> {
            thrown(() -> received.add(body(message)));
            first.countDown();
            all.countDown();
        });
        fill(queue(), 2);
        first.await(PATIENCE, TimeUnit.MILLISECONDS);
        awaitBroker(connection);
        ask("kill");
        send(auto(connection), queue(), "m2", "m3");
        boolean came = all.await(4 * PATIENCE, TimeUnit.MILLISECONDS);
        return facts("came", came, "received", received);
    }

    public Object producerCarriesOn() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        producer.send(session.createTextMessage("m0"));
        ask("kill");
        producer.send(session.createTextMessage("m1"));
        return drain(queue());
    }

    /** A kill in the midst of many sends: whichever was under way is sent again, and stored once. */
    public Object sendsUnderWayAreStoredOnce() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        CountDownLatch begun = new CountDownLatch(1);
        FutureTask<String> sending = started(act(() -> {
            for (String body : numbered(0, 400)) {
                producer.send(session.createTextMessage(body));
                if (body.equals("m50")) {
                    begun.countDown();
                }
            }
        }));
        begun.await(PATIENCE, TimeUnit.MILLISECONDS);
        ask("kill");
        String outcome = sending.get(4 * PATIENCE, TimeUnit.MILLISECONDS);
        List<Object> received = take(auto(connect()).createConsumer(queue()), 400);
        return facts("sending", outcome, "in order, once", received.equals(List.of((Object[]) numbered(0, 400))),
                "rest", drain(queue()));
    }

    /** An open transaction that has only sent is done again by the client. */
    public Object openTransactionWithSends() throws Exception {
        ActiveMQConnection connection = connect();
        Session session = transacted(connection);
        send(session, queue(), "m0", "m1");
        awaitBroker(connection);
        ask("kill");
        send(session, queue(), "m2");
        String commit = thrown(act(session::commit));
        return facts("commit", commit, "queue", drain(queue()));
    }

    public Object openTransactionIsRolledBack() throws Exception {
        ActiveMQConnection connection = connect();
        Session session = transacted(connection);
        send(session, queue(), "never");
        awaitBroker(connection);
        ask("kill");
        String rollback = thrown(act(session::rollback));
        return facts("rollback", rollback, "queue", drain(queue()));
    }

    public Object temporaryQueueCarriesOn() throws Exception {
        Session session = auto(connect());
        TemporaryQueue replies = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(replies);
        Session replier = auto(connect());
        ask("kill");
        TextMessage request = session.createTextMessage("after");
        request.setJMSReplyTo(replies);
        session.createProducer(queue()).send(request);
        Message came = replier.createConsumer(queue()).receive(PATIENCE);
        replier.createProducer(null).send(came.getJMSReplyTo(), replier.createTextMessage("re " + body(came)));
        return take(consumer, 1);
    }

    public Object durableSubscriptionCarriesOn() throws Exception {
        Connection connection = identified(named("client"));
        Session session = auto(connection);
        MessageConsumer consumer = session.createDurableSubscriber(topic(), "s");
        send(auto(connect()), topic(), "m0");
        List<Object> before = take(consumer, 1);
        awaitBroker(connection);
        ask("kill");
        send(auto(connect()), topic(), "m1");
        return facts("before", before, "after", drain(consumer, 1));
    }

    public Object preparedBranchIsCommitted() throws Exception {
        XAConnection connection = keep(new ActiveMQXAConnectionFactory(uri()).createXAConnection());
        connection.start();
        XASession session = connection.createXASession();
        XAResource resource = session.getXAResource();
        Xa.Branch branch = new Xa.Branch(named(""));
        resource.start(branch, XAResource.TMNOFLAGS);
        send(session, queue(), "m0");
        resource.end(branch, XAResource.TMSUCCESS);
        int vote = resource.prepare(branch);
        ask("kill");
        Object commit = Xa.answer(act(() -> resource.commit(branch, false)));
        return facts("vote", vote, "commit", commit, "queue", drain(queue()));
    }

    // ------------------------------------------------------------ lost answers

    private ActiveMQConnection proxied() throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(askText("proxy"));
        ActiveMQConnection connection = keep((ActiveMQConnection) factory.createConnection());
        connection.start();
        return connection;
    }

    private static FutureTask<String> started(Callable<?> action) {
        FutureTask<String> task = new FutureTask<>(() -> thrown(action));
        new Thread(task).start();
        return task;
    }

    /** Wait until the broker has so many messages, by a connection of our own. */
    private void awaitStored(int count) throws Exception {
        Connection connection = keep(new ActiveMQConnectionFactory(askText("master")).createConnection());
        connection.start();
        Session session = auto(connection);
        while (browse(session, queue(), null).size() < count) {
            Thread.onSpinWait();
        }
    }

    /** The broker stored the message, and its answer is lost. */
    public Object repeatedSendIsStoredOnce() throws Exception {
        Session session = auto(proxied());
        MessageProducer producer = session.createProducer(queue());
        producer.send(session.createTextMessage("m0"));
        ask("mute");
        FutureTask<String> sending = started(act(() -> producer.send(session.createTextMessage("m1"))));
        awaitStored(2);
        ask("cut");
        String outcome = sending.get(4 * PATIENCE, TimeUnit.MILLISECONDS);
        producer.send(session.createTextMessage("m2"));
        return facts("send", outcome, "queue", drain(queue()));
    }

    /** As before, but the message has been consumed by the time it is sent again. */
    public Object repeatedSendOfAConsumedMessage() throws Exception {
        Session session = auto(proxied());
        MessageProducer producer = session.createProducer(queue());
        producer.send(session.createTextMessage("m0"));
        ask("mute");
        FutureTask<String> sending = started(act(() -> producer.send(session.createTextMessage("m1"))));
        awaitStored(2);
        List<Object> consumed = drain(queue());
        ask("cut");
        String outcome = sending.get(4 * PATIENCE, TimeUnit.MILLISECONDS);
        return facts("consumed", consumed, "send", outcome, "queue", drain(queue()));
    }

    /** The broker committed, and its answer is lost: the client cannot know, and must report that. */
    public Object commitInDoubt() throws Exception {
        Session session = transacted(proxied());
        send(session, queue(), "m0", "m1");
        ask("mute");
        FutureTask<String> committing = started(act(session::commit));
        awaitStored(2);
        ask("cut");
        String outcome = committing.get(PATIENCE, TimeUnit.MILLISECONDS);
        send(session, queue(), "m2");
        session.commit();
        return facts("commit", outcome, "queue", drain(queue()));
    }

    /** Messages that an interrupted transaction had received come back; it cannot be committed without them. */
    public Object receivesOfAnInterruptedTransaction() throws Exception {
        fill(queue(), 3);
        ActiveMQConnection connection = proxied();
        Session session = transacted(connection);
        MessageConsumer consumer = session.createConsumer(queue());
        List<Object> before = take(consumer, 2);
        awaitBroker(connection);
        ask("cut");
        awaitBroker(connection);
        String commit = thrown(act(session::commit));
        List<Object> after = take(consumer, 3);
        session.commit();
        consumer.close();
        return facts("before", before, "commit", commit, "after", after, "left", drain(queue()));
    }
}
