import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.Socket;
import java.net.URI;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TemporaryQueue;
import javax.jms.TextMessage;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.openwire.OpenWireFormat;

/** Every version of OpenWire that clients may insist on, both encodings, keeping alive, and input that is no OpenWire. */
public final class Wire extends Area {

    private static final int[] VERSIONS = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

    /** A bit of everything by one connection; what came, in few words. */
    private Object tour(String options, String name) throws Exception {
        ActiveMQConnection connection = unstarted(options);
        connection.setClientID(named(name));
        connection.start();
        OpenWireFormat format = (OpenWireFormat) connection.getTransport().getWireFormat();
        Session session = auto(connection);
        List<Object> seen = new ArrayList<>();

        TextMessage message = session.createTextMessage("text ß");
        message.setIntProperty("n", 5);
        message.setStringProperty("JMSXGroupID", "g");
        message.setJMSCorrelationID("c");
        message.setJMSReplyTo(topic("answers"));
        session.createProducer(queue(name)).send(message, DeliveryMode.PERSISTENT, 7, 60_000);
        seen.add(browse(session, queue(name), "n = 5"));
        Message came = session.createConsumer(queue(name)).receive(PATIENCE);
        seen.add(body(came) + " " + properties(came) + " " + came.getJMSCorrelationID() + " " + came.getJMSReplyTo()
                + " " + came.getJMSPriority() + " " + came.getJMSMessageID().equals(message.getJMSMessageID()));

        Session transacted = transacted(connection);
        MessageConsumer durable = transacted.createDurableSubscriber(topic(name), "s");
        MapMessage map = session.createMapMessage();
        map.setLong("long", 1L << 40);
        session.createProducer(topic(name)).send(map);
        seen.add(((MapMessage) durable.receive(PATIENCE)).getLong("long"));
        transacted.rollback();
        seen.add(durable.receive(PATIENCE).getIntProperty("JMSXDeliveryCount"));
        transacted.commit();
        durable.close();
        transacted.unsubscribe("s");

        TemporaryQueue temporary = session.createTemporaryQueue();
        send(session, temporary, "temporary");
        seen.add(take(session.createConsumer(temporary), 1));
        seen.add(thrown(() -> session.createConsumer(queue(name), "wrong =")));
        connection.close();
        return facts("version", format.getVersion(), "seen", seen);
    }

    public Object versionsOneToTwelve() throws Exception {
        Map<String, Object> outcomes = new LinkedHashMap<>();
        for (int version : VERSIONS) {
            outcomes.put("v" + version, tour(AT_ONCE + "&wireFormat.version=" + version, "v" + version));
        }
        return outcomes;
    }

    public Object encodings() throws Exception {
        List<Object> outcomes = new ArrayList<>();
        for (boolean tight : List.of(true, false)) {
            for (boolean cached : List.of(true, false)) {
                String options = AT_ONCE + "&wireFormat.tightEncodingEnabled=" + tight + "&wireFormat.cacheEnabled="
                        + cached + "&wireFormat.stackTraceEnabled=" + cached;
                outcomes.add(tour(options, "tight." + tight + ".cached." + cached));
            }
        }
        return outcomes;
    }

    /** A message written by one version is read by another. */
    public Object versionsMix() throws Exception {
        List<Object> read = new ArrayList<>();
        for (int[] pair : new int[][] {{1, 12}, {12, 1}, {2, 9}, {9, 2}, {3, 10}, {12, 3}, {6, 11}, {12, 9}}) {
            Session writer = auto(connect("wireFormat.version=" + pair[0]));
            Session reader = auto(connect("wireFormat.version=" + pair[1]));
            TextMessage message = writer.createTextMessage(pair[0] + " to " + pair[1]);
            message.setStringProperty("property", "of " + pair[0]);
            message.setJMSType("type");
            writer.createProducer(queue()).send(message);
            MessageConsumer consumer = reader.createConsumer(queue());
            Message came = consumer.receive(PATIENCE);
            read.add(body(came) + " " + properties(came) + " " + came.getJMSType() + " "
                    + came.getJMSMessageID().equals(message.getJMSMessageID()));
            consumer.close();
        }
        return read;
    }

    /** Both sides send only keepalives for several times the inactivity limit. */
    public Object keptAlive() throws Exception {
        Connection connection = connect(
                "wireFormat.maxInactivityDuration=600&wireFormat.maxInactivityDurationInitalDelay=200");
        Session session = auto(connection);
        MessageConsumer consumer = session.createConsumer(queue());
        boolean silent = consumer.receive(2_400) == null;
        send(session, queue(), "alive");
        return facts("silent", silent, "received", take(consumer, 1));
    }

    public Object unmonitored() throws Exception {
        Connection connection = connect("wireFormat.maxInactivityDuration=0");
        Session session = auto(connection);
        send(session, queue(), "alive");
        return take(session.createConsumer(queue()), 1);
    }

    // ------------------------------------------------------------ raw sockets

    private Socket socket() throws Exception {
        URI address = new URI(uri());
        Socket socket = new Socket(address.getHost(), address.getPort());
        socket.setSoTimeout((int) PATIENCE);
        return socket;
    }

    /** What a client sends first; with a duration of inactivity. */
    private static byte[] greeting(long inactivity) throws Exception {
        OpenWireFormat format = new org.apache.activemq.openwire.OpenWireFormatFactory() {
            {
                setMaxInactivityDuration(inactivity);
                setMaxInactivityDurationInitalDelay(50);
            }

            OpenWireFormat make() {
                return (OpenWireFormat) createWireFormat();
            }
        }.make();
        var out = new ByteArrayOutputStream();
        format.marshal(format.getPreferedWireFormatInfo(), new DataOutputStream(out));
        return out.toByteArray();
    }

    /** "closed" when the other side ends the connection in time. */
    private static String end(Socket socket) throws Exception {
        try (socket) {
            socket.getInputStream().transferTo(java.io.OutputStream.nullOutputStream());
            return "closed";
        } catch (java.net.SocketTimeoutException late) {
            return "still open";
        } catch (IOException reset) {
            return "closed";
        }
    }

    public Object silentPeerIsGivenUp() throws Exception {
        Socket socket = socket();
        socket.getOutputStream().write(greeting(300));
        return end(socket);
    }

    /** Frames that are no OpenWire end their connection, and no other. */
    public Object wrongFrames() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(queue());
        Map<String, Object> outcomes = new LinkedHashMap<>();
        byte[] greeting = greeting(0);
        outcomes.put("oversize", end(written(greeting, frame(Integer.MAX_VALUE, new byte[] {30}))));
        outcomes.put("unknown type", end(written(greeting, frame(5, new byte[] {127, 0, 0, 0, 1}))));
        outcomes.put("random", end(written(greeting, frame(64, random(64)))));
        send(session, queue(), "others go on");
        outcomes.put("others", take(consumer, 1));
        return outcomes;
    }

    public Object noGreeting() throws Exception {
        return end(written("GET / HTTP/1.1\r\nHost: broker\r\nAccept: nothing at all\r\n\r\n".getBytes()));
    }

    private Socket written(byte[]... parts) throws Exception {
        Socket socket = socket();
        for (byte[] part : parts) {
            socket.getOutputStream().write(part);
        }
        return socket;
    }

    private static byte[] frame(int size, byte[] content) throws Exception {
        var out = new ByteArrayOutputStream();
        new DataOutputStream(out).writeInt(size);
        out.write(content);
        return out.toByteArray();
    }

    private static byte[] random(int size) {
        byte[] bytes = new byte[size];
        new java.util.Random(7).nextBytes(bytes);
        bytes[0] = 3;
        return bytes;
    }
}
