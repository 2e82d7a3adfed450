import java.io.File;
import java.util.Scanner;
import java.util.TreeSet;
import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.scheduler.Job;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

/**
 * Opens a data directory (kahadb/ and scheduler/ in it) with a real broker that schedules, and prints what it does:
 *
 *   job ID DELAY PERIOD REPEAT CRON NEXT   a job, sorted; CRON "-" when there is none, NEXT in the broker's local time
 *   got ID TEXT JOBID                      a message, in the order of arrival
 *
 * Arguments: the directory, or default:DIRECTORY for the layout of ActiveMQ's own configuration (DIRECTORY/kahadb and
 * DIRECTORY/localhost/scheduler), then any of
 *   send:QUEUE:TEXT:NAME=VALUE,...   send a message with properties (numbers as longs, REPEAT as int)
 *   take:QUEUE:COUNT                 receive so many messages and acknowledge them
 *   jobs                             print the jobs
 *   wait                             print "waiting", then perform a step per line of standard input, each with "done"
 *   halt                             leave at once, without stopping the broker
 */
public class OpenScheduler {
    public static void main(String[] arguments) throws Exception {
        BrokerService broker = new BrokerService();
        boolean isDefault = arguments[0].startsWith("default:");
        String directory = arguments[0].replaceFirst("^default:", "");
        broker.setBrokerName(isDefault ? "localhost" : "probe");
        broker.setUseJmx(false);
        broker.setAdvisorySupport(false);
        broker.setSchedulerSupport(true);
        broker.setDataDirectory(isDefault ? directory : directory + "/data");
        if (!isDefault) {
            broker.setSchedulerDirectoryFile(new File(directory, "scheduler"));
        }
        KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
        store.setDirectory(new File(directory, "kahadb"));
        broker.setPersistenceAdapter(store);
        broker.start();
        broker.waitUntilStarted();
        for (int i = 1; i < arguments.length; i++) {
            String[] step = arguments[i].split(":", 4);
            switch (step[0]) {
                case "halt":
                    System.out.flush();
                    Runtime.getRuntime().halt(0);
                    break;
                case "wait":
                    System.out.println("waiting");
                    Scanner lines = new Scanner(System.in);
                    while (lines.hasNextLine()) {
                        converse(broker.getBrokerName(), lines.nextLine().split(":", 4));
                        System.out.println("done");
                    }
                    break;
                case "jobs":
                    jobs(broker);
                    break;
                default:
                    converse(broker.getBrokerName(), step);
            }
        }
        broker.stop();
        broker.waitUntilStopped();
    }

    private static void jobs(BrokerService broker) throws Exception {
        TreeSet<String> lines = new TreeSet<>();
        for (Job job : broker.getJobSchedulerStore().getJobScheduler("JMS").getAllJobs()) {
            String cron = job.getCronEntry().isEmpty() ? "-" : job.getCronEntry().replace(' ', '_');
            lines.add("job " + job.getJobId() + " " + job.getDelay() + " " + job.getPeriod() + " " + job.getRepeat()
                + " " + cron + " " + job.getNextExecutionTime());
        }
        lines.forEach(System.out::println);
    }

    private static void converse(String broker, String[] step) throws Exception {
        Connection connection = new ActiveMQConnectionFactory("vm://" + broker + "?create=false").createConnection();
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        if (step[0].equals("send")) {
            TextMessage message = session.createTextMessage(step[2]);
            for (String pair : step[3].split(",")) {
                String[] property = pair.split("=");
                if (property[0].endsWith("CRON")) {
                    message.setStringProperty(property[0], property[1].replace('_', ' '));
                } else if (property[0].endsWith("REPEAT")) {
                    message.setIntProperty(property[0], Integer.parseInt(property[1]));
                } else {
                    message.setLongProperty(property[0], Long.parseLong(property[1]));
                }
            }
            session.createProducer(session.createQueue(step[1])).send(message);
        } else {
            MessageConsumer consumer = session.createConsumer(session.createQueue(step[1]));
            for (int i = Integer.parseInt(step[2]); i > 0; i--) {
                Message message = consumer.receive(20000);
                if (message == null) {
                    throw new IllegalStateException("nothing arrives on " + step[1]);
                }
                System.out.println("got " + message.getJMSMessageID() + " " + ((TextMessage) message).getText() + " "
                    + message.getStringProperty("scheduledJobId"));
            }
        }
        connection.close();
    }
}
