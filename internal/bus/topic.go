package bus

import "strings"

// topicPrefix begins the subject of a topic that is not Parley's.
const topicPrefix = "topic:"

// TopicSubject is the subject of a topic of a bus that has topics: whoever
// subscribes to it gets the records that others publish there, as they are.
func TopicSubject(topic string) string { return topicPrefix + topic }

// TopicOf gives the topic that such a subject stands for; ok is false for other
// subjects.
func TopicOf(subject string) (topic string, ok bool) { return strings.CutPrefix(subject, topicPrefix) }
