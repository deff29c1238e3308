package kafka

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/parley-project/parley/internal/bus"
)

// TestJudge: each setting of a topic that loses records, refuses them or keeps processes
// from working is named with what to do, and nothing else is.
func TestJudge(t *testing.T) {
	plan, err := Plan(Config{Brokers: []string{"h:1"}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		subject, setting, value, want string
		fatal                         bool
	}{
		{bus.SubjectTasks, "", "", "", false},
		{bus.SubjectTasks, settingMinISR, "1", "min.insync.replicas is 1 with 3 copies: a confirmed record can be lost with one broker; set it to 2", true},
		{bus.SubjectHint, settingMinISR, "1", "min.insync.replicas is 1 with 3 copies", false},
		{bus.SubjectTasks, settingMinISR, "3", "min.insync.replicas is 3 with 3 copies: nothing can be published while one broker is away", false},
		{bus.SubjectTasks, settingMinISR, "4", "min.insync.replicas is 4 with 3 copies: nothing can be published; set it to 2", true},
		{bus.SubjectTasks, settingUnclean, "true", "unclean.leader.election.enable is true: a copy that lacks confirmed records may take the lead, and they are lost; set it to false", true},
		{bus.SubjectDeadLetters, settingUnclean, "true", "unclean.leader.election.enable is true", true},
		{bus.SubjectHint, settingUnclean, "true", "unclean.leader.election.enable is true", false},
		{bus.SubjectTasks, settingUnclean, "false", "", false},
		{bus.SubjectTasks, settingCleanup, "compact,delete", "cleanup.policy is compact,delete: of the records of a run only the newest would stay; set it to delete", true},
		{bus.SubjectResults, settingCleanup, "compact,delete", "", false},
		{bus.SubjectResults, settingCleanup, "compact", "cleanup.policy is compact: it grows for ever; set it to compact,delete", false},
		{bus.SubjectTasks, settingRetention, "60000", "retention.ms is 60000 (1m0s): what is not read within that time is lost; set it to 604800000", false},
		{bus.SubjectTasks, settingRetention, "-1", "", false},
		{bus.SubjectTasks, settingBytes, "1048576", "retention.bytes is 1048576: of what is not read the oldest is lost as soon as a partition is larger than that; set it to -1", false},
		{bus.SubjectTasks, settingBytes, "-1", "", false},
		{bus.SubjectTasks, settingMaxMessage, "1000", "max.message.bytes is 1000: records that bus.kafka.max_record allows would be refused; set it to 1048588", true},
		{bus.SubjectTasks, settingCompression, "zstd", "compression.type is zstd, which peers of the existing platform cannot read: one record would stop them; set it to producer", true},
		{bus.SubjectHint, settingCompression, "zstd", "", false},
		{bus.SubjectTasks, settingBefore, "1000", "message.timestamp.before.max.ms is 1000: records of a process whose clock is off by more than 1s are refused; set it to 60000 at least", false},
		{bus.SubjectTasks, settingAfter, "59999", "message.timestamp.after.max.ms is 59999: records of a process whose clock is off by more than 59.999s are refused", false},
		{bus.SubjectTasks, settingAfter, "3600000", "", false},
		{bus.SubjectTasks, settingBefore, "9223372036854775807", "", false},
	} {
		p := plan[slices.IndexFunc(plan, func(p TopicPlan) bool { return p.Subject == tt.subject })]
		settings := map[string]string{settingCompression: "producer"}
		maps.Copy(settings, p.Settings)
		if tt.setting != "" {
			settings[tt.setting] = tt.value
		}
		found := judge(p, onBrokers(12, 3), settings)
		if tt.want == "" {
			if len(found) > 0 {
				t.Errorf("%s with %s=%s: %v", tt.subject, tt.setting, tt.value, found)
			}
			continue
		}
		if len(found) != 1 || !strings.HasPrefix(found[0].Text, tt.want) || found[0].Fatal != tt.fatal {
			t.Errorf("%s with %s=%s: %v, want %q, fatal: %v", tt.subject, tt.setting, tt.value, found, tt.want, tt.fatal)
		}
	}
	if found := judge(plan[0], onBrokers(12, 1), map[string]string{settingMinISR: "1", settingCleanup: "delete", settingUnclean: "true", settingMaxMessage: "2000000"}); slices.ContainsFunc(found, func(f Finding) bool { return strings.HasPrefix(f.Text, settingUnclean) }) {
		t.Errorf("with one copy: %v", found)
	}
}

// onBrokers is a topic that has a leader and copies everywhere.
func onBrokers(partitions, copies int) kadm.TopicDetail {
	d := kadm.TopicDetail{Topic: "t", Partitions: kadm.PartitionDetails{}}
	for p := range int32(partitions) {
		d.Partitions[p] = kadm.PartitionDetail{Partition: p, Replicas: make([]int32, copies)}
	}
	return d
}
