import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQSession;

/** The attributes of MBeans while clients are at work: the test reads them, over JMX or from Jolokia. */
public final class Mbeans extends Area {

    /** Of eight messages that a consumer got, it has acknowledged three; two wait. */
    public Object workedQueue() throws Exception {
        ActiveMQConnection connection = identified("app1");
        MessageProducer producer = auto(connection).createProducer(queue());
        fill(queue(), 10);
        ActiveMQConnection receiving = unstarted("jms.prefetchPolicy.all=5");
        receiving.setClientID("app2");
        receiving.start();
        MessageConsumer consumer = client(receiving).createConsumer(queue(), "JMSPriority > 2");
        for (int count = 0; count < 3; count++) {
            consumer.receive(PATIENCE).acknowledge();
        }
        Object found = ask("values");
        producer.close();
        return found;
    }

    /** A topic with a consumer, a durable subscription, and one without a consumer. */
    public Object workedTopic() throws Exception {
        work();
        return ask("values");
    }

    /** The attributes that one of both brokers has alone. */
    public Object attributesOfOneBroker() throws Exception {
        work();
        auto(identified("app6")).createConsumer(queue());
        return ask("names");
    }

    /** What both have, and with different values. */
    public Object brokerDiffers() throws Exception {
        work();
        return ask("differences");
    }

    private void work() throws Exception {
        ActiveMQConnection gone = identified("app4");
        auto(gone).createDurableSubscriber(topic(), "gone");
        gone.close();
        ActiveMQConnection connection = identified("app3");
        MessageConsumer durable = client(connection).createDurableSubscriber(topic(), "sub1", "n > 3", false);
        MessageConsumer plain = client(connection).createConsumer(topic());
        ActiveMQSession sending = auto(connection);
        MessageProducer producer = sending.createProducer(topic());
        for (int number = 0; number < 6; number++) {
            Message message = sending.createTextMessage("m" + number);
            message.setIntProperty("n", number);
            producer.send(message);
        }
        plain.receive(PATIENCE);
        durable.receive(PATIENCE).acknowledge();
        auto(connection).createProducer(null);
    }
}
