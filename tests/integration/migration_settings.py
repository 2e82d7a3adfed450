"""The `activemq.xml` of the pair that moves to pybroker: logins, rights, policies, scheduled messages, either store."""

USER, PASSWORD = "shop", "that of shop"


def _entry(kind: str, name: str, group: str = "shops") -> str:
    return f'<authorizationEntry {kind}="{name}" read="{group}" write="{group}" admin="{group}"/>'


_OPTIONS = "?maximumConnections=1000&amp;wireFormat.maxFrameSize=104857600"


CONFIGURATION = f"""<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
  http://www.springframework.org/schema/beans/spring-beans.xsd
  http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"/>
  DATA-SOURCE
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="orders" dataDirectory="${{activemq.data}}"
          schedulerSupport="true" useJmx="false">
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry topic="&gt;">
        <pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit="1000"/></pendingMessageLimitStrategy>
      </policyEntry>
      <policyEntry queue="&gt;" queuePrefetch="100">
        <deadLetterStrategy><individualDeadLetterStrategy queuePrefix="DLQ."/></deadLetterStrategy>
      </policyEntry>
    </policyEntries></policyMap></destinationPolicy>
    <persistenceAdapter>STORE</persistenceAdapter>
    <plugins>
      <simpleAuthenticationPlugin><users>
        <authenticationUser username="{USER}" password="{PASSWORD}" groups="shops"/>
      </users></simpleAuthenticationPlugin>
      <authorizationPlugin><map><authorizationMap><authorizationEntries>
        {_entry("queue", "OpenWire")}{_entry("queue", "STOMP")}{_entry("queue", "JOBS")}
        {_entry("queue", "JAVA.&gt;")}{_entry("queue", "DLQ.&gt;")}
        {_entry("topic", "NEWS")}{_entry("topic", "ActiveMQ.Advisory.&gt;")}
        {_entry("queue", "SECRET", "others")}
      </authorizationEntries></authorizationMap></map></authorizationPlugin>
    </plugins>
    <transportConnectors>
      <transportConnector name="openwire" uri="tcp://127.0.0.1:${{openwire.port}}{_OPTIONS}"/>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:${{stomp.port}}{_OPTIONS}"/>
    </transportConnectors>
  </broker>
</beans>
"""
KAHADB = '<kahaDB directory="${activemq.data}/kahadb"/>'
DATABASE = '<jdbcPersistenceAdapter dataSource="#pg" lockKeepAlivePeriod="1000"/>'
SOURCE = """<bean id="pg" class="org.postgresql.ds.PGSimpleDataSource">
    <property name="url" value="jdbc:postgresql://127.0.0.1:{port}/{name}"/>
    <property name="user" value="{user}"/><property name="password" value="{password}"/>
  </bean>"""


def configuration(store: str, source: str = "") -> dict[str, str]:
    """Return the files of `conf`."""
    return {"activemq.xml": CONFIGURATION.replace("STORE", store).replace("DATA-SOURCE", source)}
