import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.management.ObjectName;
import org.apache.activemq.RedeliveryPolicy;
import org.apache.activemq.broker.BrokerPlugin;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.TransportConnector;
import org.apache.activemq.broker.region.policy.ConstantPendingMessageLimitStrategy;
import org.apache.activemq.broker.region.policy.DeadLetterStrategy;
import org.apache.activemq.broker.region.policy.DiscardingDeadLetterStrategy;
import org.apache.activemq.broker.region.policy.FixedCountSubscriptionRecoveryPolicy;
import org.apache.activemq.broker.region.policy.IndividualDeadLetterStrategy;
import org.apache.activemq.broker.region.policy.LastImageSubscriptionRecoveryPolicy;
import org.apache.activemq.broker.region.policy.PolicyEntry;
import org.apache.activemq.broker.region.policy.PolicyMap;
import org.apache.activemq.broker.region.policy.RedeliveryPolicyMap;
import org.apache.activemq.broker.region.policy.SharedDeadLetterStrategy;
import org.apache.activemq.broker.region.policy.SubscriptionRecoveryPolicy;
import org.apache.activemq.broker.util.RedeliveryPlugin;
import org.apache.activemq.broker.util.TimeStampingBrokerPlugin;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.filter.DestinationMapEntry;
import org.apache.activemq.network.ConditionalNetworkBridgeFilterFactory;
import org.apache.activemq.network.NetworkConnector;
import org.apache.activemq.plugin.DiscardingDLQBrokerPlugin;
import org.apache.activemq.plugin.ForcePersistencyModeBrokerPlugin;
import org.apache.activemq.plugin.StatisticsBrokerPlugin;
import org.apache.activemq.security.AuthenticationUser;
import org.apache.activemq.security.AuthorizationEntry;
import org.apache.activemq.security.AuthorizationPlugin;
import org.apache.activemq.security.DefaultAuthorizationMap;
import org.apache.activemq.security.JaasAuthenticationPlugin;
import org.apache.activemq.security.JaasCertificateAuthenticationPlugin;
import org.apache.activemq.security.JaasDualAuthenticationPlugin;
import org.apache.activemq.security.SimpleAuthenticationPlugin;
import org.apache.activemq.security.TempDestinationAuthorizationEntry;
import org.apache.activemq.store.SharedFileLocker;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

/**
 * A stock ActiveMQ: StockBroker DIRECTORY OPENWIRE-PORT STOMP-PORT [POLICY...]. It prints "listening" once it serves,
 * and ends with its standard input; kill it for a crash. A second one on the same directory waits as the slave. With
 * "useJmx" a line "mbeans" of its input is answered with all attributes of its MBeans.
 *
 * A policy is one argument of attributes, separated by blanks: "queue=PRIO.> prioritizedMessages=true". Those with a
 * bean for a value take a short form:
 *
 *   deadLetterStrategy=individual|shared|discarding|discard-expired|keep-non-persistent
 *   subscriptionRecoveryPolicy=count:N|last
 *   pendingMessageLimit=N
 *   replayDelay=MILLISECONDS, with which messages go back over a bridge when there is no consumer
 *
 * An argument "login=USER:PASSWORD:GROUPS" is no policy but a user: with any, only users may log in. With any
 * "rule=queue|topic:PATTERN:READ:WRITE:ADMIN" they may do only what the rules allow; "temporary=READ:WRITE:ADMIN" is the
 * rule for temporary destinations. "jaas=FILE" has users log in by the modules of section "test" of that login.config.
 * "certificates=FILE" has them known by certificate, by the modules of section "certificates"; "dual=FILE" by certificate
 * with TLS, and by password without. "ssl=OPENWIRE-PORT:STOMP-PORT:want|need:DIRECTORY" opens listeners with TLS, with
 * server.p12 and trust.p12 of that directory.
 * "timeStamping=ZERO-EXPIRATION-OVERRIDE:TTL-CEILING:FUTURE-ONLY" has messages stamped with the broker's time.
 * "redelivery=QUEUES:MAXIMUM:DELAY:MULTIPLIER:FALLBACK" has the broker redeliver what consumers of these queues reject.
 * "dropOnly=EXPRESSIONS" has dead letters of destinations with such names dropped.
 * "forcePersistency=true|false" makes every message persistent, or none.
 * "journal=NAME" has the journal in a directory of that name in place of "kahadb".
 * "network=NAME:URI" has it bridge to another broker by a network connector, one way, and "duplex=NAME:URI" both ways;
 * "networkTTL=N" has demand and messages of these make up to N hops.
 * With "noScheduler" messages with a delay are delivered at once, with "noVirtualTopics" no topic is a virtual one.
 * With "populateJMSXUserID" messages get the name of the user who sends them: what the client said, or with
 * "useAuthenticatedPrincipal" who has logged in.
 */
public final class StockBroker {

    private static final long LOCK_POLL_MILLIS = 50;
    private static final String LOGIN = "login=";
    private static final String JAAS = "jaas=";
    private static final String CERTIFICATES = "certificates=";
    private static final String DUAL = "dual=";
    private static final String SSL = "ssl=";
    private static final String RULE = "rule=";
    private static final String TEMPORARY = "temporary=";
    private static final String POPULATE = "populateJMSXUserID";
    private static final String JMX = "useJmx";
    private static final String PRINCIPAL = "useAuthenticatedPrincipal";
    private static final String TIME_STAMPING = "timeStamping=";
    private static final String DROP_ONLY = "dropOnly=";
    private static final String REDELIVERY = "redelivery=";
    private static final String PERSISTENCY = "forcePersistency=";
    private static final String JOURNAL = "journal=";
    private static final String NETWORK = "network=";
    private static final String DUPLEX = "duplex=";
    private static final String NETWORK_TTL = "networkTTL=";
    private static final String NO_SCHEDULER = "noScheduler";
    private static final String NO_VIRTUAL_TOPICS = "noVirtualTopics";
    private static final List<String> NO_POLICIES = List.of(
            LOGIN, JAAS, CERTIFICATES, DUAL, SSL, RULE, TEMPORARY, POPULATE, JMX, PRINCIPAL, TIME_STAMPING, PERSISTENCY,
            REDELIVERY, DROP_ONLY, JOURNAL, NETWORK, DUPLEX, NETWORK_TTL, NO_SCHEDULER,
            NO_VIRTUAL_TOPICS);

    public static void main(String[] arguments) throws Exception {
        PrintStream output = System.out;
        System.setOut(System.err);  // a plugin prints a number
        File directory = new File(arguments[0]);
        var broker = new BrokerService();
        broker.setBrokerName("stock");
        broker.setUseJmx(List.of(arguments).contains(JMX));
        broker.getManagementContext().setCreateConnector(false);
        broker.setUseShutdownHook(false);
        broker.setDataDirectoryFile(directory);
        broker.setSchedulerDirectoryFile(new File(directory, "scheduler"));
        List<String> rest = List.of(arguments).subList(3, arguments.length);
        broker.setSchedulerSupport(!rest.contains(NO_SCHEDULER));
        broker.setUseVirtualTopics(!rest.contains(NO_VIRTUAL_TOPICS));
        var named = rest.stream().filter(each -> each.startsWith(JOURNAL)).findFirst().orElse(JOURNAL + "kahadb");
        broker.setPersistenceAdapter(store(new File(directory, named.substring(JOURNAL.length()))));
        broker.setDestinationPolicy(policies(rest.stream().filter(each -> isPolicy(each)).toList()));
        broker.setPlugins(plugins(rest));
        broker.setPopulateJMSXUserID(rest.contains(POPULATE));
        broker.setUseAuthenticatedPrincipalForJMSXUserID(rest.contains(PRINCIPAL));
        listen(broker, "tcp://127.0.0.1:" + arguments[1] + "?maximumConnections=1000&wireFormat.maxFrameSize=104857600");
        listen(broker, "stomp://127.0.0.1:" + arguments[2]);
        for (String text : rest) {
            if (text.startsWith(SSL)) {
                listenWithTls(broker, text.substring(SSL.length()).split(":", 4));
            }
        }
        var hops = rest.stream().filter(each -> each.startsWith(NETWORK_TTL)).findFirst().orElse(NETWORK_TTL + "1");
        for (String text : rest) {
            if (text.startsWith(NETWORK) || text.startsWith(DUPLEX)) {
                String[] parts = text.substring(text.indexOf('=') + 1).split(":", 2);
                NetworkConnector connector = broker.addNetworkConnector(parts[1]);
                connector.setName(parts[0]);
                connector.setDuplex(text.startsWith(DUPLEX));
                connector.setNetworkTTL(Integer.parseInt(hops.substring(NETWORK_TTL.length())));
            }
        }
        broker.start();
        broker.waitUntilStarted();
        output.println("listening");
        output.flush();
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            if (line.equals("mbeans")) {
                output.println(Json.write(mbeans()));
                output.flush();
            }
        }
        broker.stop();
        System.exit(0);
    }

    /** Add a connector whose port is open once the broker serves, as with activemq.xml: that of a slave is closed. */
    private static void listen(BrokerService broker, String uri) throws Exception {
        var connector = new TransportConnector();
        connector.setUri(new URI(uri));
        broker.addConnector(connector);
    }

    /** The attributes of all MBeans of the broker, by their names. */
    private static Map<String, Object> mbeans() throws Exception {
        var server = ManagementFactory.getPlatformMBeanServer();
        Map<String, Object> found = new TreeMap<>();
        for (ObjectName name : server.queryNames(new ObjectName("org.apache.activemq:*"), null)) {
            Map<String, Object> values = new TreeMap<>();
            for (var attribute : server.getMBeanInfo(name).getAttributes()) {
                values.put(attribute.getName(), plain(server.getAttribute(name, attribute.getName())));
            }
            found.put(name.getCanonicalName(), values);
        }
        return found;
    }

    /** A value with names of MBeans as texts. */
    private static Object plain(Object value) {
        if (value instanceof ObjectName name) {
            return name.getCanonicalName();
        }
        return value instanceof ObjectName[] names ? Arrays.stream(names).map(StockBroker::plain).toList() : value;
    }

    private static boolean isPolicy(String text) {
        return NO_POLICIES.stream().noneMatch(text::startsWith);
    }

    private static BrokerPlugin[] plugins(List<String> texts) throws Exception {
        List<BrokerPlugin> plugins = new ArrayList<>();
        var users = texts.stream().filter(each -> each.startsWith(LOGIN)).map(StockBroker::user).toList();
        if (!users.isEmpty()) {
            plugins.add(new SimpleAuthenticationPlugin(users));
        }
        List<DestinationMapEntry> entries = new ArrayList<>();
        for (String text : texts) {
            if (text.startsWith(JAAS) || text.startsWith(CERTIFICATES) || text.startsWith(DUAL)) {
                plugins.add(jaas(text.substring(0, text.indexOf('=') + 1), text.substring(text.indexOf('=') + 1)));
            }
            if (text.startsWith(RULE)) {
                entries.add(rule(text.substring(RULE.length()).split(":", -1)));
            }
        }
        if (!entries.isEmpty()) {
            var map = new DefaultAuthorizationMap(entries);
            for (String text : texts) {
                if (text.startsWith(TEMPORARY)) {
                    var entry = new TempDestinationAuthorizationEntry();
                    grant(entry, text.substring(TEMPORARY.length()).split(":", -1), 0);
                    map.setTempDestinationAuthorizationEntry(entry);
                }
            }
            plugins.add(new AuthorizationPlugin(map));
        }
        for (String text : texts) {
            if (text.startsWith(TIME_STAMPING)) {
                plugins.add(timeStamping(text.substring(TIME_STAMPING.length()).split(":")));
            }
            if (text.startsWith(DROP_ONLY)) {
                var plugin = new DiscardingDLQBrokerPlugin();
                plugin.setDropAll(false);
                plugin.setDropOnly(text.substring(DROP_ONLY.length()));
                plugins.add(plugin);
            }
            if (text.startsWith(REDELIVERY)) {
                plugins.add(redelivery(text.substring(REDELIVERY.length()).split(":")));
            }
            if (text.startsWith(PERSISTENCY)) {
                var plugin = new ForcePersistencyModeBrokerPlugin();
                plugin.setPersistenceFlag(Boolean.parseBoolean(text.substring(PERSISTENCY.length())));
                plugins.add(plugin);
            }
        }
        plugins.add(new StatisticsBrokerPlugin());
        return plugins.toArray(BrokerPlugin[]::new);
    }

    private static BrokerPlugin redelivery(String[] parts) {
        var policy = new RedeliveryPolicy();
        policy.setDestination(new ActiveMQQueue(parts[0]));
        policy.setMaximumRedeliveries(Integer.parseInt(parts[1]));
        policy.setInitialRedeliveryDelay(Long.parseLong(parts[2]));
        policy.setRedeliveryDelay(Long.parseLong(parts[2]));
        policy.setUseExponentialBackOff(true);
        policy.setBackOffMultiplier(Double.parseDouble(parts[3]));
        var map = new RedeliveryPolicyMap();
        map.setRedeliveryPolicyEntries(List.of(policy));
        var plugin = new RedeliveryPlugin();
        plugin.setRedeliveryPolicyMap(map);
        plugin.setFallbackToDeadLetter(Boolean.parseBoolean(parts[4]));
        return plugin;
    }

    private static BrokerPlugin timeStamping(String[] parts) {
        var plugin = new TimeStampingBrokerPlugin();
        plugin.setZeroExpirationOverride(Long.parseLong(parts[0]));
        plugin.setTtlCeiling(Long.parseLong(parts[1]));
        plugin.setFutureOnly(Boolean.parseBoolean(parts[2]));
        return plugin;
    }

    private static BrokerPlugin jaas(String kind, String file) {
        System.setProperty("java.security.auth.login.config", file);
        JaasAuthenticationPlugin plugin;
        if (kind.equals(DUAL)) {
            var dual = new JaasDualAuthenticationPlugin();
            dual.setSslConfiguration("certificates");
            plugin = dual;
        } else {
            plugin = kind.equals(CERTIFICATES) ? new JaasCertificateAuthenticationPlugin() : new JaasAuthenticationPlugin();
        }
        plugin.setConfiguration(kind.equals(CERTIFICATES) ? "certificates" : "test");
        plugin.setDiscoverLoginConfig(false);
        return plugin;
    }

    private static void listenWithTls(BrokerService broker, String[] parts) throws Exception {
        for (String store : List.of("keyStore", "trustStore")) {
            String file = store.equals("keyStore") ? "server.p12" : "trust.p12";
            System.setProperty("javax.net.ssl." + store, parts[3] + "/" + file);
            System.setProperty("javax.net.ssl." + store + "Password", "password");
            System.setProperty("javax.net.ssl." + store + "Type", "PKCS12");
        }
        String options = "?transport." + parts[2] + "ClientAuth=true";
        broker.addConnector("ssl://127.0.0.1:" + parts[0] + options);
        broker.addConnector("stomp+ssl://127.0.0.1:" + parts[1] + options);
    }

    private static AuthorizationEntry rule(String[] parts) throws Exception {
        var entry = new AuthorizationEntry();
        if (parts[0].equals("queue")) {
            entry.setQueue(parts[1]);
        } else {
            entry.setTopic(parts[1]);
        }
        grant(entry, parts, 2);
        return entry;
    }

    private static void grant(AuthorizationEntry entry, String[] parts, int first) throws Exception {
        entry.setRead(parts[first]);
        entry.setWrite(parts[first + 1]);
        entry.setAdmin(parts[first + 2]);
    }

    private static AuthenticationUser user(String text) {
        String[] parts = text.substring(LOGIN.length()).split(":", 3);
        return new AuthenticationUser(parts[0], parts[1], parts[2]);
    }

    private static KahaDBPersistenceAdapter store(File directory) throws Exception {
        var store = new KahaDBPersistenceAdapter();
        store.setDirectory(directory);
        var locker = new SharedFileLocker();
        locker.setLockAcquireSleepInterval(LOCK_POLL_MILLIS);
        store.setLocker(locker);
        return store;
    }

    private static PolicyMap policies(List<String> texts) {
        List<PolicyEntry> entries = new ArrayList<>();
        for (String text : texts) {
            var entry = new PolicyEntry();
            for (String attribute : text.split(" ")) {
                String[] parts = attribute.split("=", 2);
                set(entry, parts[0], parts[1]);
            }
            entries.add(entry);
        }
        var map = new PolicyMap();
        map.setPolicyEntries(entries);
        return map;
    }

    private static void set(PolicyEntry entry, String name, String value) {
        switch (name) {
            case "queue" -> entry.setQueue(value);
            case "topic" -> entry.setTopic(value);
            case "prioritizedMessages" -> entry.setPrioritizedMessages(Boolean.parseBoolean(value));
            case "strictOrderDispatch" -> entry.setStrictOrderDispatch(Boolean.parseBoolean(value));
            case "alwaysRetroactive" -> entry.setAlwaysRetroactive(Boolean.parseBoolean(value));
            case "allConsumersExclusiveByDefault" ->
                entry.setAllConsumersExclusiveByDefault(Boolean.parseBoolean(value));
            case "expireMessagesPeriod" -> entry.setExpireMessagesPeriod(Long.parseLong(value));
            case "maxBrowsePageSize" -> entry.setMaxBrowsePageSize(Integer.parseInt(value));
            case "consumersBeforeDispatchStarts" -> entry.setConsumersBeforeDispatchStarts(Integer.parseInt(value));
            case "timeBeforeDispatchStarts" -> entry.setTimeBeforeDispatchStarts(Integer.parseInt(value));
            case "memoryLimit" -> entry.setMemoryLimit(Long.parseLong(value));
            case "sendFailIfNoSpaceAfterTimeout" -> entry.setSendFailIfNoSpaceAfterTimeout(Long.parseLong(value));
            case "queuePrefetch" -> entry.setQueuePrefetch(Integer.parseInt(value));
            case "deadLetterStrategy" -> entry.setDeadLetterStrategy(deadLetters(value));
            case "subscriptionRecoveryPolicy" -> entry.setSubscriptionRecoveryPolicy(recovery(value));
            case "sendAdvisoryIfNoConsumers" -> entry.setSendAdvisoryIfNoConsumers(Boolean.parseBoolean(value));
            case "advisoryForDelivery" -> entry.setAdvisoryForDelivery(Boolean.parseBoolean(value));
            case "advisoryForConsumed" -> entry.setAdvisoryForConsumed(Boolean.parseBoolean(value));
            case "advisoryForSlowConsumers" -> entry.setAdvisoryForSlowConsumers(Boolean.parseBoolean(value));
            case "advisoryForDiscardingMessages" -> entry.setAdvisoryForDiscardingMessages(Boolean.parseBoolean(value));
            case "includeBodyForAdvisory" -> entry.setIncludeBodyForAdvisory(Boolean.parseBoolean(value));
            case "pendingMessageLimit" -> {
                var strategy = new ConstantPendingMessageLimitStrategy();
                strategy.setLimit(Integer.parseInt(value));
                entry.setPendingMessageLimitStrategy(strategy);
            }
            case "replayDelay" -> {
                var factory = new ConditionalNetworkBridgeFilterFactory();
                factory.setReplayWhenNoConsumers(true);
                factory.setReplayDelay(Integer.parseInt(value));
                entry.setNetworkBridgeFilterFactory(factory);
            }
            default -> throw new IllegalArgumentException("no such attribute here: " + name);
        }
    }

    private static DeadLetterStrategy deadLetters(String kind) {
        switch (kind) {
            case "individual":
                return new IndividualDeadLetterStrategy();
            case "discarding":
                return new DiscardingDeadLetterStrategy();
            case "discard-expired": {
                var strategy = new SharedDeadLetterStrategy();
                strategy.setProcessExpired(false);
                return strategy;
            }
            case "keep-non-persistent": {
                var strategy = new IndividualDeadLetterStrategy();
                strategy.setProcessNonPersistent(true);
                return strategy;
            }
            case "shared":
                return new SharedDeadLetterStrategy();
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static SubscriptionRecoveryPolicy recovery(String kind) {
        if (kind.equals("last")) {
            return new LastImageSubscriptionRecoveryPolicy();
        }
        var policy = new FixedCountSubscriptionRecoveryPolicy();
        policy.setMaximumSize(Integer.parseInt(kind.split(":")[1]));
        return policy;
    }
}
