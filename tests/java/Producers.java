import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.JMSException;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQMessageProducer;
import org.apache.activemq.AsyncCallback;
import org.apache.activemq.command.ActiveMQTempQueue;

/** The ways of sending: waiting for the broker, not waiting, and waiting only when a window is full. */
public final class Producers extends Area {

    private Object sendAndReceive(String options, int mode, int count) throws Exception {
        Connection connection = connect(options);
        Session session = auto(connection);
        MessageProducer producer = session.createProducer(queue());
        producer.setDeliveryMode(mode);
        for (String body : numbered(0, count)) {
            producer.send(session.createTextMessage(body));
        }
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        return take(consumer, count).equals(List.of((Object[]) numbered(0, count)));
    }

    public Object synchronous() throws Exception {
        return sendAndReceive("jms.alwaysSyncSend=true", DeliveryMode.NON_PERSISTENT, 20);
    }

    public Object asynchronous() throws Exception {
        return sendAndReceive("jms.useAsyncSend=true", DeliveryMode.PERSISTENT, 500);
    }

    public Object asynchronousNonPersistent() throws Exception {
        return sendAndReceive("", DeliveryMode.NON_PERSISTENT, 500);
    }

    /** A window of some ten messages: every acknowledgement must give back exactly what its message took. */
    public Object window() throws Exception {
        return sendAndReceive(
                "jms.useAsyncSend=true&jms.producerWindowSize=12000", DeliveryMode.PERSISTENT, 200);
    }

    public Object windowOfNonPersistent() throws Exception {
        return sendAndReceive("jms.producerWindowSize=12000", DeliveryMode.NON_PERSISTENT, 200);
    }

    public Object windowSmallerThanAMessage() throws Exception {
        return sendAndReceive("jms.producerWindowSize=10", DeliveryMode.NON_PERSISTENT, 20);
    }

    public Object windowInATransaction() throws Exception {
        Session session = transacted(connect("jms.producerWindowSize=12000"));
        send(session, queue(), numbered(0, 100));
        session.commit();
        return drain(queue()).size();
    }

    public Object windowOnATopicWithoutConsumers() throws Exception {
        Session session = auto(connect("jms.producerWindowSize=12000"));
        sendTransient(session, topic(), numbered(0, 100));
        return "sent";
    }

    public Object windowOfSeveralProducers() throws Exception {
        Connection connection = connect("jms.useAsyncSend=true&jms.producerWindowSize=5000");
        Session session = auto(connection);
        MessageProducer first = session.createProducer(queue());
        MessageProducer second = session.createProducer(queue());
        for (int number = 0; number < 100; number++) {
            (number % 2 == 0 ? first : second).send(session.createTextMessage("m" + number));
        }
        return take(auto(connect()).createConsumer(queue()), 100).equals(List.of((Object[]) numbered(0, 100)));
    }

    public Object sendTimeout() throws Exception {
        return sendAndReceive("jms.sendTimeout=5000", DeliveryMode.PERSISTENT, 10);
    }

    public Object completionIsCalledBack() throws Exception {
        Session session = auto(connect());
        ActiveMQMessageProducer producer = (ActiveMQMessageProducer) session.createProducer(queue());
        List<Object> completed = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(5);
        for (int number = 0; number < 5; number++) {
            int sent = number;
            producer.send(session.createTextMessage("m" + number), new AsyncCallback() {
                public void onSuccess() {
                    completed.add(sent);
                    all.countDown();
                }

                public void onException(JMSException refused) {
                    completed.add(refused.toString());
                    all.countDown();
                }
            });
        }
        boolean came = all.await(PATIENCE, TimeUnit.MILLISECONDS);
        return facts("came", came, "completed", completed.stream().map(Object::toString).sorted().toList(),
                "queue", drain(queue()));
    }

    public Object anonymousProducer() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(null);
        producer.send(queue("a"), session.createTextMessage("a"));
        producer.send(queue("b"), session.createTextMessage("b"));
        producer.send(queue("a"), session.createTextMessage("c"));
        return facts("a", drain(queue("a")), "b", drain(queue("b")));
    }

    public Object asynchronousRefusalReachesTheListener() throws Exception {
        Connection connection = connect("jms.watchTopicAdvisories=false&jms.useAsyncSend=true");
        CountDownLatch notified = new CountDownLatch(1);
        List<Object> errors = Collections.synchronizedList(new ArrayList<>());
        connection.setExceptionListener(refused -> {
            errors.add(refused.getClass().getName());
            notified.countDown();
        });
        Session session = auto(connection);
        MessageProducer producer = session.createProducer(null);
        producer.send(new ActiveMQTempQueue("ID:nobody-1-1-1:1:2"), session.createMessage());
        notified.await(PATIENCE, TimeUnit.MILLISECONDS);
        send(session, queue(), "goes on");
        return facts("errors", errors, "queue", drain(queue()));
    }

    public Object dispatchedByTheSendersThread() throws Exception {
        Connection connection = connect("jms.dispatchAsync=false");
        MessageConsumer consumer = auto(connection).createConsumer(queue());
        fill(queue(), 5);
        return take(consumer, 5);
    }

    public Object messagesOfManyProducersKeepTheirOrder() throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            String prefix = "p" + number + " ";
            threads.add(new Thread(() -> thrown(act(() -> {
                Session session = auto(connect("jms.useAsyncSend=true"));
                MessageProducer producer = session.createProducer(queue());
                for (int index = 0; index < 100; index++) {
                    producer.send(session.createTextMessage(prefix + index));
                }
            }))));
        }
        threads.forEach(Thread::start);
        List<Object> received = take(auto(connect()).createConsumer(queue()), 400);
        int[] next = new int[4];
        for (Object body : received) {
            String[] parts = body.toString().substring(1).split(" ");
            if (Integer.parseInt(parts[1]) != next[Integer.parseInt(parts[0])]++) {
                return "out of order: " + body;
            }
        }
        return "in order";
    }
}
