import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.xbean.spring.context.ResourceXmlApplicationContext;
import org.springframework.core.io.FileSystemResource;

/**
 * Has ActiveMQ read activemq.xml files, and starts none: ReadConfiguration FILE... Prints for each the names of its
 * `destinations`, in a line and with a vertical bar between them, or "refused".
 */
public class ReadConfiguration {
    public static void main(String[] arguments) {
        for (String each : arguments) {
            System.out.println(read(each));
        }
    }

    private static String read(String file) {
        try {
            ResourceXmlApplicationContext context = new ResourceXmlApplicationContext(new FileSystemResource(file));
            StringBuilder names = new StringBuilder();
            for (ActiveMQDestination each : context.getBean(BrokerService.class).getDestinations()) {
                names.append(names.length() == 0 ? "" : "|").append(each.getPhysicalName());
            }
            context.close();
            return names.toString();
        } catch (Exception error) {
            return "refused";
        }
    }
}
