package kafkatest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// common are the settings of every node: small, quick to notice a dead broker,
// and nothing created that nobody asked for.
const common = `process.roles=broker,controller
controller.listener.names=CONTROLLER
num.network.threads=2
num.io.threads=3
background.threads=2
num.partitions=12
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=4
log.segment.bytes=16777216
log.index.size.max.bytes=1048576
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.io.buffer.size=131072
socket.request.max.bytes=16777216
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
`

const logging = `rootLogger.level=warn
rootLogger.appenderRef.o.ref=O
logger.start.name=kafka.server.KafkaRaftServer
logger.start.level=info
appender.o.type=Console
appender.o.name=O
appender.o.layout.type=PatternLayout
appender.o.layout.pattern=%d{ISO8601} %p %c{1} %m%n
`

// properties is the server.properties of node i.
func (c *Cluster) properties(i int) string {
	n := c.nodes[i]
	var voters []string
	for j, other := range c.nodes {
		address := other.controller
		if c.options.Mesh != nil {
			address = named(j, address)
		}
		voters = append(voters, fmt.Sprintf("%d@%s", j+1, address))
	}
	open := "PLAINTEXT://" + n.plain
	if n.secure != "" {
		open += ",SECURE://" + n.secure
	}
	told, between := open, "PLAINTEXT"
	if c.options.Mesh != nil {
		open += ",INTERNAL://" + n.internal
		told += ",INTERNAL://" + named(i, n.internal) + ",CONTROLLER://" + named(i, n.controller)
		between = "INTERNAL"
	}
	copies := len(c.nodes)
	set := map[string]string{
		"node.id":                        fmt.Sprint(i + 1),
		"controller.quorum.voters":       strings.Join(voters, ","),
		"listeners":                      open + ",CONTROLLER://" + n.controller,
		"advertised.listeners":           told,
		"inter.broker.listener.name":     between,
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:" + c.options.protocol(),
		"log.dirs":                       n.dir + "/data",
		"default.replication.factor":     fmt.Sprint(copies),
		"min.insync.replicas":            fmt.Sprint((copies + 1) / 2),
	}
	for _, topic := range []string{"offsets.topic", "transaction.state.log", "share.coordinator.state.topic"} {
		set[topic+".replication.factor"] = fmt.Sprint(copies)
	}
	for _, topic := range []string{"transaction.state.log", "share.coordinator.state.topic"} {
		set[topic+".min.isr"] = fmt.Sprint((copies + 1) / 2)
	}
	if c.options.SASL {
		maps.Copy(set, saslSettings())
	}
	if c.options.TLS {
		maps.Copy(set, c.tlsSettings())
	}
	if c.options.ACL {
		set["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		// The plain listener and the nodes among each other stay free.
		set["super.users"] = "User:ANONYMOUS;User:" + AdminUser
	}
	maps.Copy(set, c.options.Settings)
	var b strings.Builder
	b.WriteString(common)
	for _, name := range slices.Sorted(maps.Keys(set)) {
		fmt.Fprintf(&b, "%s=%s\n", name, set[name])
	}
	return b.String()
}

// protocol is the kind of the secure listener.
func (o Options) protocol() string {
	switch {
	case o.SASL && o.TLS:
		return "SASL_SSL"
	case o.SASL:
		return "SASL_PLAINTEXT"
	case o.TLS:
		return "SSL"
	}
	return "PLAINTEXT"
}
