package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
)

// The names of Kafka's settings of topics that matter here.
const (
	settingMinISR      = "min.insync.replicas"
	settingCleanup     = "cleanup.policy"
	settingRetention   = "retention.ms"
	settingMaxMessage  = "max.message.bytes"
	settingCompression = "compression.type"
	settingUnclean     = "unclean.leader.election.enable"
	settingBytes       = "retention.bytes"
	// By how much the time of a record may differ from the broker's.
	settingBefore = "message.timestamp.before.max.ms"
	settingAfter  = "message.timestamp.after.max.ms"
)

// clocksApart is how far the clocks of processes and brokers may be apart without
// anybody having to look after them.
const clocksApart = time.Minute

// partitions is how many a topic gets: so many processes of a group can share
// its work.
const partitions = 12

// brokersMax is the largest message of a broker that nobody has configured.
const brokersMax = 1_048_588

// TopicPlan is a topic as it should be.
type TopicPlan struct {
	Subject    string `json:"subject"`
	Topic      string `json:"topic"`
	Partitions int32  `json:"partitions"`
	// Replicas is the number of copies.
	Replicas int16 `json:"replicas"`
	// Settings are Kafka's, by its names.
	Settings map[string]string `json:"settings"`
	// Optional topics are needed with some configurations only, and it is not known
	// whether with this one: [Config.Used] does not say.
	Optional bool `json:"optional"`
}

// Plan gives the topics that a configuration uses as they should be on so many
// brokers, sorted by name: 12 partitions, 3 copies of which 2 must be in sync
// (fewer where there are fewer brokers), tasks and results for 7 days, dead
// letters for 30, and what is only a hint for one.
func Plan(c Config, brokers int) ([]TopicPlan, error) {
	c, err := complete(c)
	if err != nil {
		return nil, err
	}
	replicas := min(3, max(1, brokers))
	var all []TopicPlan
	for subject, topic := range c.Topics {
		if c.Used != nil && !slices.Contains(c.Used, subject) {
			continue
		}
		days, cleanup, optional := 1, "delete", false
		switch subject {
		case bus.SubjectTasks:
			days = 7
		case bus.SubjectResults:
			days, cleanup = 7, "compact,delete"
		case bus.SubjectMonitoring, bus.SubjectStartRequests, bus.SubjectCancelRequests:
			days, optional = 7, c.Used == nil
		case bus.SubjectDeadLetters:
			days = 30
		}
		all = append(all, TopicPlan{
			Subject: subject, Topic: topic, Partitions: partitions, Replicas: int16(replicas), Optional: optional, //nolint:gosec // at most 3
			Settings: map[string]string{
				settingMinISR:     strconv.Itoa((replicas + 1) / 2),
				settingCleanup:    cleanup,
				settingRetention:  strconv.FormatInt((time.Duration(days) * 24 * time.Hour).Milliseconds(), 10),
				settingMaxMessage: strconv.Itoa(max(brokersMax, int(batchBytes(c.MaxRecord)))),
			},
		})
	}
	slices.SortFunc(all, func(a, b TopicPlan) int { return cmp.Compare(a.Topic, b.Topic) })
	return all, nil
}

// Finding is one thing that is not as it should be.
type Finding struct {
	// Fatal findings keep Parley or its peers from working, or lose records; the
	// others are worth knowing.
	Fatal bool `json:"fatal"`
	// Unchecked ones say what may not be looked at, and so is not known.
	Unchecked bool `json:"unchecked,omitempty"`
	// Text says what it is and what to do.
	Text string `json:"text"`
}

// TopicReport is what was found of one topic.
type TopicReport struct {
	Plan TopicPlan `json:"plan"`
	// Exists says whether the topic is there, Created whether it was made just now.
	Exists   bool      `json:"exists"`
	Created  bool      `json:"created"`
	Findings []Finding `json:"findings"`
}

// Report is what CreateTopics and CheckTopics found, sorted by topic.
type Report struct {
	Brokers int `json:"brokers"`
	// Cluster is Kafka's id of the cluster, "" where the brokers do not say.
	Cluster string        `json:"cluster,omitempty"`
	Topics  []TopicReport `json:"topics"`
}

// String gives a line for the cluster, one for each topic and an indented one for each
// finding.
func (r Report) String() string {
	var b strings.Builder
	if r.Cluster != "" {
		fmt.Fprintf(&b, "cluster  %s\n", r.Cluster)
	}
	for _, t := range r.Topics {
		state := "ok"
		switch {
		case t.Created:
			state = "created"
		case slices.ContainsFunc(t.Findings, func(f Finding) bool { return f.Fatal }):
			state = "wrong"
		case slices.ContainsFunc(t.Findings, func(f Finding) bool { return f.Unchecked }):
			state = "unknown"
		case len(t.Findings) > 0:
			state = "warning"
		}
		fmt.Fprintf(&b, "%-8s %s (%s)\n", state, t.Plan.Topic, t.Plan.Subject)
		for _, f := range t.Findings {
			fmt.Fprintf(&b, "         - %s\n", f.Text)
		}
	}
	return b.String()
}

// Err is nil, or an error of code invalid that names the topics with a fatal
// finding. Where there is none, what was not checked is one of code unauthorized.
func (r Report) Err() error {
	var wrong, unchecked []string
	for _, t := range r.Topics {
		for _, f := range t.Findings {
			switch {
			case f.Fatal:
				wrong = append(wrong, t.Plan.Topic+": "+f.Text)
			case f.Unchecked:
				unchecked = append(unchecked, t.Plan.Topic+": "+f.Text)
			}
		}
	}
	switch {
	case len(wrong) == 0 && len(unchecked) == 0:
		return nil
	case len(wrong) == 0:
		return parley.Errorf(parley.CodeUnauthorized, "not all of Kafka's topics could be checked: %s", strings.Join(unchecked, "; "))
	}
	return parley.Errorf(parley.CodeInvalid, "Kafka's topics are not as they should be: %s", strings.Join(wrong, "; "))
}

// CreateTopics makes the topics that are missing, leaves the others as they are,
// and reports on all as CheckTopics does. One that may not be made keeps none of the
// others from being made.
func (b *Bus) CreateTopics(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*adminLimit)
	defer cancel()
	r, err := b.look(ctx)
	if err != nil {
		return r, err
	}
	var made []string
	refused := make(map[string]string)
	for _, t := range r.Topics {
		if t.Exists || t.unseen() {
			continue
		}
		switch err := b.createTopic(ctx, t.Plan); {
		case parley.CodeOf(err) == parley.CodeUnauthorized:
			refused[t.Plan.Topic] = "it does not exist, and may not be made: " + err.Error()
		case err != nil:
			return r, err
		default:
			made = append(made, t.Plan.Topic)
		}
	}
	if err := b.awaitTopics(ctx, made); err != nil {
		return r, explain(err, "wait for the topics that were made")
	}
	if r, err = b.lookFor(ctx, made); err != nil {
		return r, err
	}
	for i := range r.Topics {
		t := &r.Topics[i]
		t.Created = slices.Contains(made, t.Plan.Topic)
		if why := refused[t.Plan.Topic]; why != "" && !t.Exists {
			t.Findings = []Finding{{Fatal: !t.Plan.Optional, Text: why}}
		}
	}
	return r, nil
}

// createTopic makes one topic, unless somebody else does.
func (b *Bus) createTopic(ctx context.Context, p TopicPlan) error {
	settings := make(map[string]*string)
	for name, value := range p.Settings {
		settings[name] = &value
	}
	_, err := b.admin.CreateTopic(ctx, p.Partitions, p.Replicas, settings, p.Topic)
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	return explain(err, "create the topic "+p.Topic, toMake(p.Topic))
}

// unseen says that it is not even known whether the topic is there.
func (t *TopicReport) unseen() bool {
	return !t.Exists && slices.ContainsFunc(t.Findings, func(f Finding) bool { return f.Unchecked })
}

// awaitTopics waits until topics that were made can be published to.
func (b *Bus) awaitTopics(ctx context.Context, topics []string) error {
	if len(topics) == 0 {
		return nil
	}
	_, err := patiently(ctx, func(ctx context.Context) (struct{}, error) {
		known, err := b.metadata(ctx, topics...)
		if err != nil {
			return struct{}{}, err
		}
		for _, t := range topics {
			if d := known.Topics[t]; d.Err != nil || len(d.Partitions) < partitions || len(leaderless(d)) > 0 {
				return struct{}{}, kerr.LeaderNotAvailable
			}
		}
		return struct{}{}, nil
	})
	return err
}

// CheckTopics reports on every topic of the plan: what is missing, and which
// settings would lose records, stop peers, or refuse what Parley publishes. It
// changes nothing. An error says that Kafka could not be asked.
func (b *Bus) CheckTopics(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	return b.look(ctx)
}

// Missing gives those topics of the subjects that no broker knows, sorted. Topics
// that are not known get a second, since they may just have been made. An error says
// that Kafka could not be asked, or does not let the process see one of them.
func (b *Bus) Missing(ctx context.Context, subjects ...string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	var names []string
	for _, s := range subjects {
		names = append(names, b.cfg.Topics[s])
	}
	if len(names) == 0 {
		return nil, nil // asked for none, Kafka would tell of all
	}
	slices.Sort(names)
	var missing, hidden []string
	_, err := patiently(ctx, func(ctx context.Context) (struct{}, error) {
		known, err := b.metadata(ctx, names...)
		if err != nil {
			return struct{}{}, err
		}
		hidden = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !denied(known.Topics[name].Err) })
		missing = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			d := known.Topics[name]
			return d.Topic != "" && !errors.Is(d.Err, kerr.UnknownTopicOrPartition)
		})
		if len(missing) > 0 {
			return struct{}{}, kerr.UnknownTopicOrPartition
		}
		return struct{}{}, nil
	})
	switch {
	case len(missing) > 0:
		return missing, nil
	case err == nil && len(hidden) > 0:
		var rights []string
		for _, topic := range hidden {
			rights = append(rights, toRead(topic))
		}
		return nil, explain(kerr.TopicAuthorizationFailed, "look at the topics", rights...)
	}
	return nil, explain(err, "look at the topics")
}

// lookFor looks until topics that were made are seen: a broker that is asked may
// learn of them a little later.
func (b *Bus) lookFor(ctx context.Context, made []string) (Report, error) {
	for until := b.cfg.Now().Add(settleLimit); ; {
		r, err := b.look(ctx)
		unseen := slices.ContainsFunc(r.Topics, func(t TopicReport) bool { return !t.Exists && slices.Contains(made, t.Plan.Topic) })
		if err != nil || !unseen || b.cfg.Now().After(until) {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// settleLimit is how long brokers may differ about which topics there are.
const settleLimit = 5 * time.Second

func (b *Bus) look(ctx context.Context) (Report, error) {
	var r Report
	known, err := b.metadata(ctx, slices.Sorted(maps.Values(b.cfg.Topics))...)
	if err != nil {
		return r, explain(err, "look at the topics")
	}
	unwritable, err := b.unwritable(ctx)
	if err != nil {
		return r, explain(err, "look at the rights")
	}
	r.Brokers, r.Cluster = len(known.Brokers), known.Cluster
	plan, err := Plan(b.cfg, r.Brokers)
	if err != nil {
		return r, err
	}
	for _, p := range plan {
		t := TopicReport{Plan: p}
		d := known.Topics[p.Topic]
		switch {
		case errors.Is(d.Err, kerr.UnknownTopicOrPartition) || d.Topic == "":
			t.Findings = []Finding{{Fatal: !p.Optional, Text: "it does not exist; make it with `parley topics create`"}}
		case denied(d.Err):
			t.Findings = []Finding{{Unchecked: true, Text: "it may not be looked at, or does not exist: " + explain(d.Err, "look at it", toSee(p.Topic)).Error()}}
		case d.Err != nil:
			t.Findings = []Finding{{Fatal: true, Text: explain(d.Err, "look at it").Error()}}
		default:
			t.Exists = true
			if t.Findings, err = b.judgeTopic(ctx, p, d); err != nil {
				return r, err
			}
			if unwritable[p.Topic] {
				t.Findings = append(t.Findings, Finding{Text: "it is to be published to, and may not be written to: " +
					grantAdvice(kerr.TopicAuthorizationFailed, []string{toWrite(p.Topic)})})
			}
		}
		r.Topics = append(r.Topics, t)
	}
	return r, nil
}

// judgeTopic gives what is wrong with a topic that is there. Where its settings may not be
// seen, that is a finding, and the rest is looked at all the same.
func (b *Bus) judgeTopic(ctx context.Context, p TopicPlan, d kadm.TopicDetail) ([]Finding, error) {
	settings, err := b.knownSettings(ctx, p.Topic)
	switch {
	case denied(err):
		why := explain(err, "look at its settings", toSeeConfig(p.Topic)).Error()
		return append(judgePlaces(p, d), Finding{Unchecked: true, Text: "its settings may not be looked at, and are not checked: " + why}), nil
	case err != nil:
		return nil, explain(err, "look at the settings of "+p.Topic)
	}
	return append([]Finding{}, judge(p, d, settings)...), nil // in JSON none are []
}

// knownSettings are those of a topic that one broker knows. Another one, which is
// asked now, may learn of it a little later.
func (b *Bus) knownSettings(ctx context.Context, topic string) (map[string]string, error) {
	for until := b.cfg.Now().Add(settleLimit); ; {
		settings, err := patiently(ctx, func(ctx context.Context) (map[string]string, error) { return b.settings(ctx, topic) })
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || ctx.Err() != nil || b.cfg.Now().After(until) {
			return settings, err
		}
	}
}

func (b *Bus) settings(ctx context.Context, topic string) (map[string]string, error) {
	described, err := b.admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	settings := make(map[string]string)
	for _, r := range described {
		if r.Err != nil {
			return nil, r.Err
		}
		for _, c := range r.Configs {
			settings[c.Key] = c.MaybeValue()
		}
	}
	return settings, nil
}
