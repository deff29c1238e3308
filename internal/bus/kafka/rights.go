package kafka

import (
	"context"
	"errors"
	"math"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What Kafka's access rules (ACLs) must allow. READ and WRITE include DESCRIBE.
func toWrite(topic string) string     { return "WRITE on the topic " + topic }
func toRead(topic string) string      { return "READ on the topic " + topic }
func toJoin(group string) string      { return "READ on the group " + group }
func toSee(topic string) string       { return "DESCRIBE on the topic " + topic }
func toSeeConfig(topic string) string { return "DESCRIBE_CONFIGS on the topic " + topic }
func toMake(topic string) string      { return "CREATE on the topic " + topic }

// denied reports whether access rules are why something was refused.
func denied(err error) bool {
	return errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.GroupAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed)
}

// grantAdvice says which of the rights that something takes are to be given: those on
// groups if it was refused for a group, else the others.
func grantAdvice(err error, rights []string) string {
	var wanted []string
	for _, r := range rights {
		if strings.Contains(r, " on the group ") == errors.Is(err, kerr.GroupAuthorizationFailed) {
			wanted = append(wanted, r)
		}
	}
	if len(wanted) == 0 {
		return "give the user of bus.kafka.sasl the right to"
	}
	return "allow the user of bus.kafka.sasl " + strings.Join(wanted, " and ")
}

// metadata asks a broker, not what the client remembers. That one topic may not be seen
// is an error of that topic alone.
func (b *Bus) metadata(ctx context.Context, topics ...string) (kadm.Metadata, error) {
	resp, err := aboutTopics(topics).RequestWith(ctx, b.client)
	if err != nil {
		return kadm.Metadata{}, err
	}
	known := kadm.Metadata{Topics: make(kadm.TopicDetails)}
	if resp.ClusterID != nil {
		known.Cluster = *resp.ClusterID
	}
	for _, broker := range resp.Brokers {
		known.Brokers = append(known.Brokers, kadm.BrokerDetail{NodeID: broker.NodeID, Host: broker.Host, Port: broker.Port, Rack: broker.Rack})
	}
	for _, t := range resp.Topics {
		if t.Topic != nil {
			known.Topics[*t.Topic] = topicDetail(t)
		}
	}
	return known, nil
}

func aboutTopics(topics []string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(name)
		req.Topics = append(req.Topics, t)
	}
	return req
}

// unwritable gives those of the topics of Config.Written that this process sees and may
// not write to.
func (b *Bus) unwritable(ctx context.Context) (map[string]bool, error) {
	var topics []string
	for _, subject := range b.cfg.Written {
		topics = append(topics, b.cfg.Topics[subject])
	}
	if len(topics) == 0 {
		return nil, nil // asked for none, Kafka would tell of all
	}
	req := aboutTopics(topics)
	req.IncludeTopicAuthorizedOperations = true
	resp, err := req.RequestWith(ctx, b.client)
	if err != nil {
		return nil, err
	}
	denied := make(map[string]bool)
	for _, t := range resp.Topics {
		told := t.Topic != nil && t.ErrorCode == 0 && t.AuthorizedOperations != math.MinInt32
		if told && t.AuthorizedOperations&(1<<kmsg.ACLOperationWrite) == 0 {
			denied[*t.Topic] = true
		}
	}
	return denied, nil
}

func topicDetail(t kmsg.MetadataResponseTopic) kadm.TopicDetail {
	d := kadm.TopicDetail{
		Topic: *t.Topic, ID: t.TopicID, IsInternal: t.IsInternal, Partitions: make(kadm.PartitionDetails), Err: kerr.ErrorForCode(t.ErrorCode),
	}
	for _, p := range t.Partitions {
		d.Partitions[p.Partition] = kadm.PartitionDetail{
			Topic: d.Topic, Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas,
			ISR: p.ISR, OfflineReplicas: p.OfflineReplicas, Err: kerr.ErrorForCode(p.ErrorCode),
		}
	}
	return d
}
