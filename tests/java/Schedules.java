import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import javax.jms.DeliveryMode;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TemporaryQueue;
import javax.jms.TextMessage;
import javax.jms.Topic;
import org.apache.activemq.ScheduledMessage;

/** Messages for later: once, repeatedly, by cron; and the management of what waits. */
public final class Schedules extends Area {

    /** Longer than a check takes. */
    private static final long AN_HOUR = 3_600_000;

    private TextMessage later(Session session, String text, Map<String, Object> settings) throws Exception {
        TextMessage message = session.createTextMessage(text);
        for (var setting : settings.entrySet()) {
            message.setObjectProperty(setting.getKey(), setting.getValue());
        }
        return message;
    }

    /** What waits for this check's queue: the messages that BROWSE shows, with all patience for a number of them. */
    private List<Message> waiting(Session session, int least) throws Exception {
        TemporaryQueue answers = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(answers);
        Message request = session.createMessage();
        request.setStringProperty(ScheduledMessage.AMQ_SCHEDULER_ACTION, ScheduledMessage.AMQ_SCHEDULER_ACTION_BROWSE);
        request.setJMSReplyTo(answers);
        manage(session, request);
        List<Message> jobs = new ArrayList<>();
        while (true) {
            Message job = jobs.size() < least ? consumer.receive(PATIENCE) : next(consumer, SILENCE);
            if (job == null) {
                return jobs;
            }
            if (job.getStringProperty("check").equals(named(""))) {
                jobs.add(job);
            }
        }
    }

    private static void manage(Session session, Message request) throws Exception {
        Topic management = session.createTopic(ScheduledMessage.AMQ_SCHEDULER_MANAGEMENT_DESTINATION);
        session.createProducer(management).send(request);
    }

    private static void remove(Session session, Message job) throws Exception {
        Message request = session.createMessage();
        request.setStringProperty(ScheduledMessage.AMQ_SCHEDULER_ACTION, ScheduledMessage.AMQ_SCHEDULER_ACTION_REMOVE);
        request.setStringProperty(ScheduledMessage.AMQ_SCHEDULED_ID, job.getStringProperty("scheduledJobId"));
        manage(session, request);
    }

    private static List<Object> texts(List<Message> messages) throws Exception {
        List<Object> texts = new ArrayList<>();
        for (Message message : messages) {
            texts.add(body(message));
        }
        return texts;
    }

    public Object delay() throws Exception {
        // Sent at once, for a busy disk's answer to the first might take as long as its delay.
        Session session = auto(connect("jms.useAsyncSend=true"));
        MessageConsumer consumer = session.createConsumer(queue());
        TextMessage message = later(session, "later", Map.of("AMQ_SCHEDULED_DELAY", 300L, "kept", 5));
        long sentAt = System.currentTimeMillis();
        session.createProducer(queue()).send(message);
        send(session, queue(), "now");
        Object first = body(consumer.receive(PATIENCE));
        Message came = consumer.receive(PATIENCE);
        return facts(
                "first", first, "then", body(came), "not early", System.currentTimeMillis() - sentAt >= 300,
                "properties", properties(came).keySet(), "same id",
                came.getJMSMessageID().equals(message.getJMSMessageID()), "delivery mode", came.getJMSDeliveryMode());
    }

    public Object delayOfANonPersistentMessage() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        producer.send(later(session, "later", Map.of("AMQ_SCHEDULED_DELAY", 50L)));
        Message came = session.createConsumer(queue()).receive(PATIENCE);
        return facts("came", body(came), "delivery mode", came.getJMSDeliveryMode());
    }

    public Object inTheOrderOfTheirTimes() throws Exception {
        // Sent at once, for a busy disk's answer to one might take longer than what lies between two times.
        Session session = auto(connect("jms.useAsyncSend=true"));
        MessageProducer producer = session.createProducer(queue());
        producer.send(later(session, "third", Map.of("AMQ_SCHEDULED_DELAY", 1_300L)));
        producer.send(later(session, "first", Map.of("AMQ_SCHEDULED_DELAY", 50L)));
        producer.send(later(session, "second", Map.of("AMQ_SCHEDULED_DELAY", 700L)));
        return take(session.createConsumer(queue()), 3);
    }

    public Object repeated() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        session.createProducer(queue()).send(later(session, "again", Map.of(
                "AMQ_SCHEDULED_DELAY", 50L, "AMQ_SCHEDULED_PERIOD", 100L, "AMQ_SCHEDULED_REPEAT", 2)));
        List<Object> ids = new ArrayList<>();
        List<Object> bodies = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            Message message = consumer.receive(PATIENCE);
            bodies.add(body(message));
            ids.add(message.getJMSMessageID());
        }
        return facts("came", bodies, "distinct ids", ids.stream().distinct().count(), "rest", drain(consumer));
    }

    public Object onATopic() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(topic());
        session.createProducer(topic()).send(later(session, "later", Map.of("AMQ_SCHEDULED_DELAY", 50L)));
        return take(consumer, 1);
    }

    public Object settingsAsText() throws Exception {
        Session session = auto(connect());
        session.createProducer(queue()).send(later(session, "later", Map.of("AMQ_SCHEDULED_DELAY", "50")));
        return take(session.createConsumer(queue()), 1);
    }

    public Object timeToLiveBeginsWithTheDelivery() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        producer.setTimeToLive(10_000);
        TextMessage message = later(session, "later", Map.of("AMQ_SCHEDULED_DELAY", 300L));
        producer.send(message);
        Message came = session.createConsumer(queue()).receive(PATIENCE);
        return facts("came", body(came), "renewed", came.getJMSExpiration() >= message.getJMSExpiration() + 250);
    }

    public Object inATransaction() throws Exception {
        Session session = transacted(connect());
        MessageProducer producer = session.createProducer(queue());
        producer.send(later(session, "never", Map.of("AMQ_SCHEDULED_DELAY", 50L)));
        session.rollback();
        producer.send(later(session, "later", Map.of("AMQ_SCHEDULED_DELAY", 50L)));
        session.commit();
        List<Object> came = take(session.createConsumer(queue()), 1);
        session.commit();
        return came;
    }

    public Object tooManyRepeats() throws Exception {
        Session session = auto(connect());
        TextMessage message = later(session, "never", Map.of(
                "AMQ_SCHEDULED_DELAY", AN_HOUR, "AMQ_SCHEDULED_PERIOD", 1L, "AMQ_SCHEDULED_REPEAT", 1001));
        return thrown(act(() -> session.createProducer(queue()).send(message)));
    }

    public Object wrongCron() throws Exception {
        Session session = auto(connect());
        return thrown(() -> later(session, "never", Map.of("AMQ_SCHEDULED_CRON", "* * *")));
    }

    /** A date in the far future: it waits, is shown, and goes when it is removed. */
    public Object cronWaits() throws Exception {
        Session session = auto(connect());
        session.createProducer(queue()).send(later(
                session, "new year", Map.of("AMQ_SCHEDULED_CRON", "0 0 1 1 *", "check", named(""))));
        List<Message> before = waiting(session, 1);
        Message job = before.get(0);
        Object shown = facts(
                "body", body(job), "cron", job.getStringProperty("AMQ_SCHEDULED_CRON"),
                "has a job id", job.getStringProperty("scheduledJobId") != null,
                "reply's destination is temporary", job.getJMSDestination() instanceof TemporaryQueue);
        remove(session, job);
        return facts("waiting", texts(before), "shown", shown, "removed", texts(waiting(session, 0)));
    }

    public Object removedBeforeItsTime() throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        for (String text : List.of("a", "b", "c")) {
            producer.send(later(session, text, Map.of("AMQ_SCHEDULED_DELAY", AN_HOUR, "check", named(""))));
        }
        List<Message> jobs = waiting(session, 3);
        List<Object> before = texts(jobs).stream().map(Object::toString).sorted().map(text -> (Object) text).toList();
        for (Message job : jobs) {
            if (body(job).equals("b")) {
                remove(session, job);
            }
        }
        List<Object> after = texts(waiting(session, 2)).stream().map(Object::toString).sorted()
                .map(text -> (Object) text).toList();
        Message all = session.createMessage();
        all.setStringProperty(ScheduledMessage.AMQ_SCHEDULER_ACTION, ScheduledMessage.AMQ_SCHEDULER_ACTION_REMOVEALL);
        manage(session, all);
        return facts("before", before, "after", after, "all removed", texts(waiting(session, 0)));
    }
}
