import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TemporaryQueue;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.advisory.AdvisorySupport;
import org.apache.activemq.advisory.DestinationSource;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;
import org.apache.activemq.command.ConnectionInfo;
import org.apache.activemq.command.ConsumerInfo;
import org.apache.activemq.command.DestinationInfo;
import org.apache.activemq.command.ProducerInfo;
import org.apache.activemq.command.RemoveInfo;

/** What the broker announces on its advisory topics. */
public final class Advisories extends Area {

    private MessageConsumer listen(javax.jms.Destination advisories) throws Exception {
        return auto(connect()).createConsumer(advisories);
    }

    /** The type of what an advisory is about. */
    private static String kind(Message advisory) {
        if (advisory == null) {
            return "nothing";
        }
        Object data = ((ActiveMQMessage) advisory).getDataStructure();
        if (data instanceof DestinationInfo destination) {
            return destination.isAddOperation() ? "DestinationInfo add" : "DestinationInfo remove";
        } else if (data instanceof RemoveInfo removed) {
            return "RemoveInfo " + removed.getObjectId().getClass().getSimpleName();
        }
        return data == null ? "null" : data.getClass().getSimpleName();
    }

    private static Object counted(Message advisory, String property) throws Exception {
        return advisory == null ? "nothing" : List.of(kind(advisory), advisory.getIntProperty(property));
    }

    /** The next advisory about one of this check's destinations. */
    private Message aboutOurs(MessageConsumer advisories) throws Exception {
        for (Message advisory; (advisory = advisories.receive(PATIENCE)) != null; ) {
            Object data = ((ActiveMQMessage) advisory).getDataStructure();
            if (data instanceof DestinationInfo info && info.getDestination().getPhysicalName().startsWith(named(""))) {
                return advisory;
            }
        }
        return null;
    }

    public Object consumers() throws Exception {
        MessageConsumer advisories = listen(AdvisorySupport.getConsumerAdvisoryTopic(queue()));
        Session session = auto(connect());
        MessageConsumer first = session.createConsumer(queue(), "n = 1");
        ActiveMQMessage added = (ActiveMQMessage) advisories.receive(PATIENCE);
        ConsumerInfo data = (ConsumerInfo) added.getDataStructure();
        MessageConsumer second = session.createConsumer(queue());
        List<Object> counts = new ArrayList<>(List.of(counted(added, "consumerCount")));
        counts.add(counted(advisories.receive(PATIENCE), "consumerCount"));
        first.close();
        counts.add(counted(advisories.receive(PATIENCE), "consumerCount"));
        second.close();
        counts.add(counted(advisories.receive(PATIENCE), "consumerCount"));
        return facts("advisories", counts, "destination", data.getDestination().toString(),
                "selector", data.getSelector(), "type", added.getJMSType(), "delivery mode", added.getJMSDeliveryMode(),
                "topic", added.getJMSDestination().toString(), "origin named",
                added.getStringProperty("originBrokerName") != null && added.getStringProperty("originBrokerId") != null
                        && added.getStringProperty("originBrokerURL") != null);
    }

    public Object consumersOfATopic() throws Exception {
        MessageConsumer advisories = listen(AdvisorySupport.getConsumerAdvisoryTopic(topic()));
        Connection connection = connect();
        auto(connection).createConsumer(topic());
        Object added = counted(advisories.receive(PATIENCE), "consumerCount");
        connection.close();
        return List.of(added, counted(advisories.receive(PATIENCE), "consumerCount"));
    }

    /** A later subscriber gets the advisories of the consumers that are there. */
    public Object existingConsumersAreReplayed() throws Exception {
        auto(connect()).createConsumer(queue());
        MessageConsumer advisories = listen(AdvisorySupport.getConsumerAdvisoryTopic(queue()));
        return List.of(kind(advisories.receive(PATIENCE)), drain(advisories));
    }

    public Object producers() throws Exception {
        MessageConsumer advisories = listen(AdvisorySupport.getProducerAdvisoryTopic(queue()));
        MessageProducer producer = auto(connect()).createProducer(queue());
        Object added = counted(advisories.receive(PATIENCE), "producerCount");
        producer.close();
        return List.of(added, counted(advisories.receive(PATIENCE), "producerCount"));
    }

    public Object connections() throws Exception {
        MessageConsumer advisories = listen(AdvisorySupport.getConnectionAdvisoryTopic());
        Connection connection = identified(named("watched"));
        List<Object> seen = new ArrayList<>();
        String id = null;
        for (Message advisory; seen.size() < 2 && (advisory = advisories.receive(PATIENCE)) != null; ) {
            Object data = ((ActiveMQMessage) advisory).getDataStructure();
            if (data instanceof ConnectionInfo info && named("watched").equals(info.getClientId())) {
                id = info.getConnectionId().toString();
                boolean blank = info.getPassword() == null || info.getPassword().isEmpty();
                seen.add("ConnectionInfo, password blank " + blank);
                connection.close();
            } else if (data instanceof RemoveInfo removed && removed.getObjectId().toString().equals(id)) {
                seen.add(kind(advisory));
            }
        }
        return seen;
    }

    public Object queues() throws Exception {
        MessageConsumer advisories = listen(new ActiveMQTopic(AdvisorySupport.QUEUE_ADVISORY_TOPIC.getPhysicalName()));
        ActiveMQConnection connection = connect();
        send(auto(connection), queue(), "m");
        String created = kind(aboutOurs(advisories));
        connection.destroyDestination(queue());
        return List.of(created, kind(aboutOurs(advisories)));
    }

    public Object topics() throws Exception {
        MessageConsumer advisories = listen(new ActiveMQTopic(AdvisorySupport.TOPIC_ADVISORY_TOPIC.getPhysicalName()));
        send(auto(connect()), topic(), "m");
        return kind(aboutOurs(advisories));
    }

    public Object temporaryQueues() throws Exception {
        MessageConsumer advisories = listen(AdvisorySupport.TEMP_QUEUE_ADVISORY_TOPIC);
        TemporaryQueue queue = auto(connect()).createTemporaryQueue();
        List<Object> seen = new ArrayList<>();
        for (Message advisory; seen.size() < 2 && (advisory = advisories.receive(PATIENCE)) != null; ) {
            DestinationInfo data = (DestinationInfo) ((ActiveMQMessage) advisory).getDataStructure();
            if (data.getDestination().equals(queue)) {
                seen.add(kind(advisory));
                if (seen.size() == 1) {
                    queue.delete();
                }
            }
        }
        return seen;
    }

    public Object deadLetters() throws Exception {
        MessageConsumer advisories = listen(new ActiveMQTopic("ActiveMQ.Advisory.MessageDLQd.Queue." + named("")));
        Connection connection = connect("jms.redeliveryPolicy.maximumRedeliveries=0");
        send(auto(connection), queue(), "bad");
        Session session = transacted(connection);
        session.createConsumer(queue()).receive(PATIENCE);
        session.rollback();
        return kind(advisories.receive(PATIENCE));
    }

    public Object expired() throws Exception {
        MessageConsumer advisories = listen(AdvisorySupport.getExpiredQueueMessageAdvisoryTopic(
                (ActiveMQDestination) new ActiveMQQueue("Policies.shared." + named(""))));
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(new ActiveMQQueue("Policies.shared." + named("")));
        producer.setTimeToLive(50);
        Message message = session.createTextMessage("late");
        producer.send(message);
        ActiveMQMessage advisory = (ActiveMQMessage) advisories.receive(PATIENCE);
        return facts("kind", kind(advisory),
                "names the message", message.getJMSMessageID().equals(advisory.getStringProperty("orignalMessageId")));
    }

    public Object destinationSource() throws Exception {
        fill(queue("before"), 1);
        DestinationSource source = connect().getDestinationSource();
        fill(queue("after"), 1);
        Set<ActiveMQQueue> queues = source.getQueues();
        long end = System.currentTimeMillis() + PATIENCE;
        while (!queues.containsAll(List.of(queue("before"), queue("after"))) && System.currentTimeMillis() < end) {
            Thread.onSpinWait();
        }
        return facts("before", queues.contains(queue("before")), "after", queues.contains(queue("after")));
    }

    public Object noDurableSubscription() throws Exception {
        Session session = auto(identified(named("durable")));
        return thrown(() -> session.createDurableSubscriber(AdvisorySupport.getConnectionAdvisoryTopic(), "s"));
    }
}
