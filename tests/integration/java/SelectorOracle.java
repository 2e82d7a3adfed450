import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.MessageId;
import org.apache.activemq.filter.BooleanExpression;
import org.apache.activemq.filter.MessageEvaluationContext;
import org.apache.activemq.selector.SelectorParser;

/**
 * Asks the stock ActiveMQ what a selector makes of a message.
 *
 * Each line of standard input is one question, tab-separated: the selector, then one field per header or
 * property, "name:type:value". Types: b boolean, y byte, h short, i int, l long, f float, d double, s string,
 * x list of one string, n null. In selector and values a tab, line feed, carriage return and backslash are written as in Java.
 *
 * Each question gets one line of answer: "true", "false", "invalid" (refused by the parser) or "error"
 * (the evaluation threw, which the broker takes for no match).
 */
public final class SelectorOracle {

    public static void main(String[] arguments) throws Exception {
        var questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.println(answer(List.of(line.split("\t", -1))));
        }
    }

    private static String answer(List<String> fields) throws Exception {
        ActiveMQMessage message = message(fields.subList(1, fields.size()));
        BooleanExpression selector;
        try {
            selector = SelectorParser.parse(unescape(fields.get(0)));
        } catch (Exception | Error refused) {
            return "invalid";
        }
        var context = new MessageEvaluationContext();
        context.setMessageReference(message);
        try {
            return String.valueOf(selector.matches(context));
        } catch (RuntimeException thrown) {
            return "error";
        }
    }

    private static ActiveMQMessage message(List<String> fields) throws Exception {
        var message = new ActiveMQMessage();
        message.setMessageId(new MessageId("ID:oracle-1:1:1:1"));
        message.setDestination(ActiveMQDestination.createDestination("queue://ORACLE", (byte) 1));
        message.setPersistent(true);
        for (String field : fields) {
            String[] parts = field.split(":", 3);
            set(message, parts[0], value(parts[1], unescape(parts[2])));
        }
        return message;
    }

    private static void set(ActiveMQMessage message, String name, Object value) throws Exception {
        switch (name) {
            case "JMSMessageID" -> message.setJMSMessageID((String) value);
            case "JMSDestination" -> message.setDestination(ActiveMQDestination.createDestination((String) value, (byte) 1));
            case "JMSXUserID" -> message.setUserID((String) value);
            case "JMSXDeliveryCount" -> message.setRedeliveryCounter((Integer) value - 1);
            case "JMSDeliveryMode" -> message.setPersistent(value.equals("PERSISTENT"));
            case "JMSPriority" -> message.setPriority(((Integer) value).byteValue());
            case "JMSTimestamp" -> message.setTimestamp((Long) value);
            case "JMSExpiration" -> message.setExpiration((Long) value);
            case "JMSReplyTo" -> message.setReplyTo(ActiveMQDestination.createDestination((String) value, (byte) 1));
            case "JMSType" -> message.setType((String) value);
            case "JMSCorrelationID" -> message.setCorrelationId((String) value);
            case "JMSXGroupID" -> message.setGroupID((String) value);
            case "JMSXGroupSeq" -> message.setGroupSequence((Integer) value);
            default -> message.setObjectProperty(name, value, false);
        }
    }

    private static Object value(String type, String text) {
        return switch (type) {
            case "b" -> Boolean.valueOf(text);
            case "y" -> Byte.valueOf(text);
            case "h" -> Short.valueOf(text);
            case "i" -> Integer.valueOf(text);
            case "l" -> Long.valueOf(text);
            case "f" -> Float.valueOf(text);
            case "d" -> Double.valueOf(text);
            case "s" -> text;
            case "x" -> List.of(text);
            case "n" -> null;
            default -> throw new IllegalArgumentException("unknown type " + type);
        };
    }

    private static String unescape(String text) {
        return text.translateEscapes();
    }
}
