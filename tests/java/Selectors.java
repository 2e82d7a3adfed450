import java.util.LinkedHashMap;
import java.util.Map;
import javax.jms.DeliveryMode;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;

/** A sample of the language of selectors, on the wire; each selector's answer is the messages that a browser shows. */
public final class Selectors extends Area {

    private static final String[] SELECTORS = {
        "n = 2", "n <> 2", "n > 2", "n >= 2 AND n < 4", "n BETWEEN 1 AND 3", "n NOT BETWEEN 1 AND 3",
        "n + 1 = 3", "n * 2 > 6", "n / 2 = 1", "n - 1 < 0", "-n = -3", "n = 1e0", "price > 2.4", "price = 2.5",
        "color = 'red'", "color <> 'red'", "color IN ('red', 'blue')", "color NOT IN ('red', 'blue')",
        "color LIKE 'r%'", "color LIKE '_e_'", "color NOT LIKE '%e%'", "color LIKE 'a!_%' ESCAPE '!'",
        "color IS NULL", "color IS NOT NULL", "flag", "flag = TRUE", "NOT flag", "flag OR n = 0",
        "missing = 1", "missing <> 1", "missing IS NULL AND n = 0", "color = 'it''s'",
        "JMSPriority = 8", "JMSType = 'special'", "JMSCorrelationID = 'c1'", "JMSDeliveryMode = 'PERSISTENT' AND n = 0",
        "JMSDeliveryMode = 'NON_PERSISTENT'", "JMSRedelivered = FALSE AND n = 0", "JMSXGroupID = 'g'",
        "(n = 0 OR n = 1) AND NOT (n = 1)", "n = 1 OR n = 2 AND n = 3", "color = 5", "n = '2'",
        "big = 5000000000", "big > 2147483647", "n % 2 = 0",
    };

    /** Where JMS 1.1 and ActiveMQ do not agree. */
    private static final String[] DISPUTED = {"NOT n = 2", "missing = missing"};

    public Object sample() throws Exception {
        return answers(SELECTORS);
    }

    public Object disputed() throws Exception {
        return answers(DISPUTED);
    }

    private Map<String, Object> answers(String[] selectors) throws Exception {
        Session session = auto(connect());
        MessageProducer producer = session.createProducer(queue());
        producer.send(message(session, 0, "red", true, 1.5));
        producer.send(message(session, 1, "green", false, 2.5));
        Message third = message(session, 2, "blue", null, 2.4);
        third.setJMSType("special");
        third.setJMSCorrelationID("c1");
        producer.send(third, DeliveryMode.PERSISTENT, 8, 0);
        Message fourth = message(session, 3, null, true, 0);
        fourth.setStringProperty("JMSXGroupID", "g");
        producer.send(fourth);
        Message fifth = message(session, 4, "a_b", null, 7);
        fifth.setLongProperty("big", 5_000_000_000L);
        producer.send(fifth);
        producer.send(message(session, 5, "it's", false, 3), DeliveryMode.NON_PERSISTENT, 4, 0);
        Map<String, Object> answers = new LinkedHashMap<>();
        for (String selector : selectors) {
            answers.put(selector, browse(session, queue(), selector).stream().sorted().toList().toString());
        }
        return answers;
    }

    private static Message message(Session session, int number, String color, Boolean flag, double price)
            throws Exception {
        TextMessage message = session.createTextMessage("" + number);
        message.setIntProperty("n", number);
        message.setDoubleProperty("price", price);
        if (color != null) {
            message.setStringProperty("color", color);
        }
        if (flag != null) {
            message.setBooleanProperty("flag", flag);
        }
        return message;
    }

    public Object onATopic() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(topic(), "n > 3");
        MessageProducer producer = session.createProducer(topic());
        for (int number = 0; number < 6; number++) {
            producer.send(message(session, number, "red", null, 1));
        }
        return take(consumer, 2);
    }

    public Object emptySelectorSelectsAll() throws Exception {
        fill(queue(), 2);
        return take(auto(connect()).createConsumer(queue(), ""), 2);
    }
}
