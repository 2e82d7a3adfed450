import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQMessageConsumer;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.LocalTransactionId;
import org.apache.activemq.command.MessageAck;
import org.apache.activemq.command.MessageId;
import org.apache.activemq.command.TransactionInfo;
import org.apache.activemq.transport.failover.FailoverTransport;

/** Local transactions: sends and acknowledgements that happen together or not at all. */
public final class Transactions extends Area {

    public Object commit() throws Exception {
        Session session = transacted(connect());
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        send(session, queue(), "m0", "m1");
        boolean silent = silent(consumer);
        session.commit();
        return facts("silent", silent, "received", take(consumer, 2));
    }

    public Object rollbackOfSends() throws Exception {
        Session session = transacted(connect());
        send(session, queue(), "never");
        session.rollback();
        send(session, queue(), "m0");
        session.commit();
        return drain(queue());
    }

    public Object rollbackOfReceives() throws Exception {
        fill(queue(), 3);
        Session session = transacted(connect(AT_ONCE));
        MessageConsumer consumer = session.createConsumer(queue());
        List<Object> first = takeMarked(consumer, 2);
        session.rollback();
        List<Object> again = takeMarked(consumer, 3);
        session.commit();
        return facts("first", first, "again", again, "left", drain(queue()));
    }

    public Object receiveAndSendTogether() throws Exception {
        fill(queue("in"), 2);
        Session session = transacted(connect(AT_ONCE));
        MessageConsumer consumer = session.createConsumer(queue("in"));
        send(session, queue("out"), "of " + body(consumer.receive(PATIENCE)));
        session.rollback();
        send(session, queue("out"), "again of " + body(consumer.receive(PATIENCE)));
        session.commit();
        send(session, queue("out"), "of " + body(consumer.receive(PATIENCE)));
        session.commit();
        session.close();
        return facts("in", drain(queue("in")), "out", drain(queue("out")));
    }

    public Object invisibleToBrowsers() throws Exception {
        Connection connection = connect();
        Session session = transacted(connection);
        send(session, queue(), "m0");
        awaitBroker(connection);
        List<Object> before = browse(auto(connect()), queue(), null);
        session.commit();
        return facts("before", before, "after", browse(auto(connect()), queue(), null));
    }

    public Object ordersByCommit() throws Exception {
        Session first = transacted(connect());
        Session second = transacted(connect());
        send(first, queue(), "first 0");
        send(second, queue(), "second 0");
        send(first, queue(), "first 1");
        send(auto(connect()), queue(), "plain");
        second.commit();
        first.commit();
        return drain(queue());
    }

    public Object manyQueuesAndTopicsInOne() throws Exception {
        Session session = transacted(connect());
        MessageConsumer listener = auto(connect()).createConsumer(topic());
        send(session, queue("a"), "a0");
        send(session, topic(), "t0");
        send(session, queue("b"), "b0");
        send(session, queue("a"), "a1");
        boolean silent = silent(listener);
        session.commit();
        return facts("silent", silent, "topic", take(listener, 1), "a", drain(queue("a")), "b", drain(queue("b")));
    }

    public Object nonPersistentToo() throws Exception {
        Session session = transacted(connect());
        sendTransient(session, queue(), "never");
        session.rollback();
        sendTransient(session, queue(), "n0", "n1");
        session.commit();
        return drain(queue());
    }

    public Object sessionsOfOneConnectionAreSeparate() throws Exception {
        Connection connection = connect();
        Session kept = transacted(connection);
        Session dropped = transacted(connection);
        send(kept, queue(), "kept");
        send(dropped, queue(), "dropped");
        dropped.rollback();
        kept.commit();
        return drain(queue());
    }

    public Object closedSessionRollsBack() throws Exception {
        fill(queue("in"), 1);
        Session session = transacted(connect());
        take(session.createConsumer(queue("in")), 1);
        send(session, queue("out"), "never");
        session.close();
        return facts("in", takeMarked(auto(connect()).createConsumer(queue("in")), 1), "out", drain(queue("out")));
    }

    public Object cutConnectionRollsBack() throws Exception {
        fill(queue("in"), 2);
        ActiveMQConnection connection = connect();
        Session session = transacted(connection);
        take(session.createConsumer(queue("in")), 1);
        send(session, queue("out"), "never");
        awaitBroker(connection);
        cut(connection);
        return facts("in", takeMarked(auto(connect()).createConsumer(queue("in")), 2), "out", drain(queue("out")));
    }

    public Object rolledBackMessagesStayWithTheirConsumer() throws Exception {
        fill(queue(), 2);
        Session session = transacted(connect(AT_ONCE));
        MessageConsumer consumer = session.createConsumer(queue());
        take(consumer, 1);
        MessageConsumer other = auto(connect()).createConsumer(queue());
        session.rollback();
        boolean silent = silent(other);
        consumer.close();
        return facts("other silent", silent, "when closed", takeMarked(other, 2));
    }

    public Object committedBeyondTheWindow() throws Exception {
        fill(queue(), 12);
        Session session = transacted(connect("jms.prefetchPolicy.queuePrefetch=3"));
        MessageConsumer consumer = session.createConsumer(queue());
        List<Object> received = take(consumer, 8);
        session.commit();
        received.addAll(take(consumer, 4));
        session.commit();
        return facts("received", received, "left", drain(queue()));
    }

    public Object rolledBackBeyondTheWindow() throws Exception {
        fill(queue(), 6);
        Session session = transacted(connect(AT_ONCE + "&jms.prefetchPolicy.queuePrefetch=2"));
        MessageConsumer consumer = session.createConsumer(queue());
        take(consumer, 4);
        session.rollback();
        List<Object> again = take(consumer, 6);
        session.commit();
        return facts("again", again, "left", drain(queue()));
    }

    public Object manySendsInOneTransaction() throws Exception {
        Session session = transacted(connect());
        send(session, queue(), numbered(0, 500));
        session.commit();
        List<Object> received = take(auto(connect()).createConsumer(queue()), 500);
        return received.equals(List.of((Object[]) numbered(0, 500)));
    }

    /** How many messages one transaction can receive, within a window of a thousand. */
    public Object manyReceivesInOneTransaction() throws Exception {
        Session session = transacted(connect());
        send(session, queue(), numbered(0, 300));
        session.commit();
        int received = drain(session.createConsumer(queue())).size();
        session.commit();
        return received;
    }

    public Object emptyTransactions() throws Exception {
        Session session = transacted(connect());
        return facts(
                "commit", thrown(act(session::commit)),
                "rollback", thrown(act(session::rollback)),
                "not transacted", thrown(act(auto(connect())::commit)));
    }

    public Object unknownTransaction() throws Exception {
        ActiveMQConnection connection = connect();
        awaitBroker(connection);
        LocalTransactionId never = new LocalTransactionId(connection.getConnectionInfo().getConnectionId(), 4711);
        List<Object> outcomes = new ArrayList<>();
        for (byte type : new byte[] {TransactionInfo.COMMIT_ONE_PHASE, TransactionInfo.ROLLBACK}) {
            var command = new TransactionInfo(connection.getConnectionInfo().getConnectionId(), never, type);
            outcomes.add(thrown(() -> connection.syncSendPacket(command)));
        }
        return outcomes;
    }

    public Object asynchronousFailureSpoilsTheTransaction() throws Exception {
        Session owner = auto(connect());
        var gone = owner.createTemporaryQueue();
        ActiveMQConnection connection = connect("jms.watchTopicAdvisories=false");
        Session session = transacted(connection);
        MessageProducer producer = session.createProducer(null);
        Message message = session.createTextMessage("m");
        producer.send(gone, message);
        awaitBroker(connection);
        gone.delete();
        producer.send(gone, message);
        producer.send(queue(), message);
        return facts("commit", thrown(act(session::commit)), "queue", drain(queue()));
    }

    /** What the broker after a failover receives when the one before it had been sent what was acknowledged. */
    public Object acknowledgementsLostInAFailover() throws Exception {
        fill(queue(), 2);
        var factory = new ActiveMQConnectionFactory("failover:(" + uri() + ")");
        ActiveMQConnection connection = keep((ActiveMQConnection) factory.createConnection());
        connection.start();
        transacted(connection).createConsumer(queue());
        connection.getTransport().narrow(FailoverTransport.class).handleTransportFailure(new IOException("cut"));
        awaitBroker(connection);
        String commit = committed(connection);
        connection.close();
        return facts("commit", commit, "queue", drain(queue()));
    }

    /** The middle one of three was another consumer's before the failover. */
    public Object moreInTheRangeThanWasReceived() throws Exception {
        fill(queue(), 3);
        ActiveMQConnection connection = connect();
        Session browsing = auto(connection);
        List<MessageId> ids = new ArrayList<>();
        for (var shown = browsing.createBrowser(queue()).getEnumeration(); shown.hasMoreElements(); ) {
            ids.add(((ActiveMQMessage) shown.nextElement()).getMessageId());
        }
        var consumer = (ActiveMQMessageConsumer) transacted(connection).createConsumer(queue());
        while (consumer.getMessageSize() < 3) {
            Thread.onSpinWait();
        }
        MessageAck ack = new MessageAck();
        ack.setConsumerId(consumer.getConsumerId());
        ack.setDestination(queue());
        ack.setAckType(MessageAck.STANDARD_ACK_TYPE);
        ack.setFirstMessageId(ids.get(0));
        ack.setLastMessageId(ids.get(2));
        ack.setMessageCount(2);
        String commit = committed(connection, ack);
        connection.close();
        return facts("commit", commit, "queue", drain(queue()));
    }

    /** What the commit of a transaction with these acknowledgements raises. */
    private static String committed(ActiveMQConnection connection, MessageAck... acks) throws Exception {
        var id = new LocalTransactionId(connection.getConnectionInfo().getConnectionId(), 99);
        connection.asyncSendPacket(new TransactionInfo(id.getConnectionId(), id, TransactionInfo.BEGIN));
        for (MessageAck ack : acks) {
            ack.setTransactionId(id);
            connection.asyncSendPacket(ack);
        }
        var commit = new TransactionInfo(id.getConnectionId(), id, TransactionInfo.COMMIT_ONE_PHASE);
        return thrown(() -> connection.syncSendPacket(commit));
    }

    public Object listenerCommits() throws Exception {
        fill(queue("in"), 4);
        Session session = transacted(connect());
        MessageProducer producer = session.createProducer(queue("out"));
        session.createConsumer(queue("in")).setMessageListener(message -> thrown(act(() -> {
            producer.send(session.createTextMessage("re " + body(message)));
            session.commit();
        })));
        return take(auto(connect()).createConsumer(queue("out")), 4);
    }
}
